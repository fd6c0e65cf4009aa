package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/dustin/go-humanize/english"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
)

// placed is a file that a restore wrote, in the state that it left it in.
type placed struct {
	Path   string `json:"path"`
	Digest string `json:"digest,omitempty"` // as in COMMIT.json
	identity
}

// record is a RESTORED.json.
type record struct {
	Restored
	ID      string   `json:"id,omitempty"` // of the restore
	Written []placed `json:"written,omitempty"`
}

// read reads a small file of the site, which must be a plain one.
func (s *site) read(name string) ([]byte, identity, error) {
	file, err := s.place.open(name)
	if err != nil {
		return nil, identity{}, err
	}
	defer file.Close() // opened for reading
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return nil, identity{}, err
	}
	text, err := io.ReadAll(io.LimitReader(file, commitLimit))
	return text, identityOf(&st), err
}

// report reads a RESTORED.json. An error is fs.ErrNotExist when there is none.
func (s *site) report(name string) (r record, id identity, err error) {
	text, id, err := s.read(name)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err == nil && (r.Source == "" || r.Restored.Restored.IsZero()) {
		err = errors.New("it is not by a restore")
	}
	return r, id, err
}

// recall reads what the last restore left.
func (s *site) recall() {
	r, id, err := s.report(restored)
	if err != nil {
		return // survey finds what is no record of ours
	}
	s.before, s.record = r.Written, id
	for _, p := range r.Files { // of a version that did not note their state
		if !slices.ContainsFunc(s.before, func(w placed) bool { return w.Path == p }) {
			s.before = append(s.before, placed{Path: p})
		}
	}
}

// foreign collects the files that survey may not touch.
type foreign struct {
	mu    sync.Mutex
	paths []string
}

func (f *foreign) add(p string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paths = append(f.paths, p)
}

func (f *foreign) error(dir string) error {
	if len(f.paths) == 0 {
		return nil
	}
	slices.Sort(f.paths)
	var names []string
	for _, p := range f.paths[:min(len(f.paths), 5)] {
		names = append(names, fmt.Sprintf("%q", p))
	}
	text := strings.Join(names, ", ")
	if more := len(f.paths) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return &backends.Error{Op: "restore", Store: dir, Kind: backends.Exist, Err: fmt.Errorf(
		"%s in the way: no restore wrote what is there, or it changed since: %s; move it away, or replace it with --overwrite",
		english.Plural(len(f.paths), "file", ""), text)}
}

// list finds out what must go from the site before files can come to it, and changes
// nothing. It refuses, with an error of kind Exist, what no restore wrote or what
// changed since, unless it may overwrite, and always what is a directory or stands
// where a directory goes. An early one is repeated before anything changes.
func (s *site) list(ctx context.Context, files []File, early bool) (aside []placed, err error) {
	if !s.exists {
		return nil, nil
	}
	known, coming := make(map[string][]placed, len(s.before)), make(map[string]File, len(files))
	for _, w := range s.before {
		known[w.Path] = append(known[w.Path], w)
	}
	for _, f := range files {
		coming[f.Path] = f
	}
	var not foreign
	trusted := early || s.notifiesChanges()
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	consider := func(p string, comes bool) error {
		st, found, err := s.scan(p, comes)
		if err != nil || !found {
			return err
		}
		now := identityOf(&st)
		aside = append(aside, placed{Path: p, identity: now})
		unchanged := trusted && slices.ContainsFunc(known[p], func(w placed) bool { return w.identity == now })
		switch {
		case s.overwrite, unchanged, p == restored && now == s.record:
		case st.Mode&unix.S_IFMT != unix.S_IFREG:
			not.add(p)
		default:
			g.Go(func() error {
				same, err := s.holds(gctx, p, now, known[p], coming[p], trusted)
				if err == nil && !same {
					not.add(p)
				}
				return err
			})
		}
		return nil
	}
	err = consider(restored, true)
	for p := range known {
		if _, stays := coming[p]; !stays && checkPath(p) == nil && err == nil {
			err = consider(p, false)
		}
	}
	for _, f := range files {
		if err == nil {
			err = consider(f.Path, true)
		}
	}
	if err := errors.Join(err, g.Wait()); err != nil {
		return nil, err
	}
	return aside, not.error(s.dir)
}

// scan describes what has the name of a file that comes, or of one that has to go.
func (s *site) scan(p string, comes bool) (st unix.Stat_t, found bool, err error) {
	st, err = s.place.stat(p)
	obstacle := (*obstacleError)(nil)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return st, false, nil
	case errors.As(err, &obstacle) && comes:
		return st, false, s.blocked(obstacle.path, obstacle.what+" is where a directory of the checkpoint goes")
	case errors.As(err, &obstacle):
		return st, false, nil // it has gone
	case err != nil:
		return st, false, err
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return st, true, nil
	case comes:
		return st, false, s.blocked(p, "a directory is where a file of the checkpoint goes")
	}
	return st, false, nil
}

func (s *site) blocked(p, what string) error {
	return &backends.Error{Op: "restore", Store: s.dir, Key: p, Kind: backends.Exist, Err: errors.New(what + ": remove it")}
}

// notifiesChanges reports whether the change time of the site's files changes with their
// contents: in memory, a write through a mapping leaves it.
func (s *site) notifiesChanges() bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(s.place.root.Fd()), &st) == nil && int64(st.Type)&0xffffffff != unix.TMPFS_MAGIC
}

// holds reports whether a file has the bytes that a restore gave it, or those that this
// one brings: then nobody's work is lost with it.
func (s *site) holds(ctx context.Context, p string, now identity, known []placed, comes File, trusted bool) (bool, error) {
	s.mu.Lock()
	checked := s.checked[p] == now
	s.mu.Unlock()
	if checked && trusted {
		return true, nil
	}
	tried := make(map[string]bool)
	for _, w := range append(slices.Clone(known), placed{Digest: comes.Digest, identity: identity{Size: comes.Size}}) {
		if w.Digest == "" || w.Size != now.Size || tried[w.Digest] {
			continue
		}
		tried[w.Digest] = true
		same, err := s.sums(ctx, p, now, w.Digest)
		if err != nil {
			return false, err
		}
		if same {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.checked[p] = now
			return true, nil
		}
	}
	return false, nil
}

func (s *site) sums(ctx context.Context, p string, now identity, digest string) (bool, error) {
	want, err := backends.ParseChecksum(digest)
	if err != nil || want.IsZero() {
		return false, nil //nolint:nilerr // a digest that cannot be compared proves nothing
	}
	place, err := openPlace(s.root) // each has a directory of its own
	if err != nil {
		return false, err
	}
	defer place.close()
	file, err := place.open(p)
	if err != nil {
		return false, nil //nolint:nilerr // it cannot be read, so nothing is proved
	}
	defer file.Close() // opened for reading
	sum := want.Algorithm.New()
	if _, err := io.Copy(sum, &obedient{ctx, file}); err != nil {
		return false, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil || identityOf(&st) != now {
		return false, err
	}
	return backends.SumOf(want.Algorithm, sum) == want, nil
}

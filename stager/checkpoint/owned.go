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
	"github.com/stager-dev/stager/backends/sys"
)

// placed is a file that a restore wrote, with its state after the restore.
type placed struct {
	Path   string `json:"path"`
	Digest string `json:"digest,omitempty"` // as in COMMIT.json
	identity
}

// record is the content of RESTORED.json.
type record struct {
	Restored
	ID      string   `json:"id,omitempty"` // of the restore
	Written []placed `json:"written,omitempty"`
}

// read reads a small file of the site. The file must be regular.
func (s *site) read(name string) ([]byte, identity, error) {
	file, err := s.place.open(name)
	if err != nil {
		return nil, identity{}, err
	}
	defer file.Close() // opened for reading
	id, err := identityOfFile(file)
	if err != nil {
		return nil, identity{}, err
	}
	text, err := io.ReadAll(io.LimitReader(file, commitLimit))
	return text, id, err
}

// report reads a RESTORED.json. The error is fs.ErrNotExist when there is none.
func (s *site) report(name string) (r record, id identity, err error) {
	text, id, err := s.read(name)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err == nil && (r.Source == "" || r.Restored.Restored.IsZero()) {
		err = errors.New("it was not written by a restore")
	}
	return r, id, err
}

// recall reads the record of the last restore.
func (s *site) recall() {
	r, id, err := s.report(restored)
	if err != nil {
		return // list reports a file that is not our record
	}
	s.before, s.record = r.Written, id
	for _, p := range r.Files { // an older version did not record their state
		if !slices.ContainsFunc(s.before, func(w placed) bool { return w.Path == p }) {
			s.before = append(s.before, placed{Path: p})
		}
	}
}

// foreign collects the files that list must not change.
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

// list returns the files that must be moved away before the new files can be placed. It changes
// nothing. Unless overwrite is set, it refuses files that no restore wrote, or that changed
// since, with an error of kind Exist. It always refuses a directory in the place of a file, and
// anything else in the place of a directory. The result of an early call is provisional: the
// caller repeats the call before it changes anything.
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

// scan returns the state of the entry at p. With comes, a new file will be placed at p, so a
// directory there is an error. Otherwise p will be removed, and a directory counts as not found.
func (s *site) scan(p string, comes bool) (st unix.Stat_t, found bool, err error) {
	st, err = s.place.stat(p)
	obstacle := (*obstacleError)(nil)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return st, false, nil
	case errors.As(err, &obstacle) && comes:
		return st, false, s.blocked(obstacle.path, obstacle.what+" is where a directory of the checkpoint goes")
	case errors.As(err, &obstacle):
		return st, false, nil // already removed
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

// notifiesChanges reports whether the change time of the site's files follows their contents. It
// does not on tmpfs, where a write through a mapping leaves it unchanged.
func (s *site) notifiesChanges() bool {
	on, err := sys.FileSystemOf(int(s.place.root.Fd()))
	return err == nil && !on.MapsSilently
}

// holds reports whether a file has the content that an earlier restore wrote, or that this one
// will write. If so, replacing it loses nobody's work.
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
	place, err := openPlace(s.root) // each goroutine needs its own directory descriptor
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
	if after, err := identityOfFile(file); err != nil || after != now {
		return false, err
	}
	return backends.SumOf(want.Algorithm, sum) == want, nil
}

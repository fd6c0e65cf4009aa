package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/sys"
)

// What to do when the store has a COMMIT of the same step with other content.
const (
	ConflictFail      = "fail"           // report an error and leave it
	ConflictOverwrite = "overwrite"      // replace it, unless a newer attempt wrote it
	ConflictSuffix    = "attempt-suffix" // commit beside it, as step-…-attempt-N
)

// errChanged is wrapped in errors of kind Changed: the checkpoint changed after it was complete,
// and nothing was committed.
var errChanged = errors.New("it changed, or is open for writing, since the checkpoint was complete")

// errConflict is wrapped in errors of kind Exist.
var errConflict = errors.New("the destination has this step with other content")

// unholdableError reports that the destination can never store a file under its name.
type unholdableError struct{ error }

func (e *unholdableError) Unwrap() error { return e.error }

func changed(p string) error {
	return &backends.Error{Op: "read", Key: p, Kind: backends.Changed, Err: errChanged}
}

// shipper uploads checkpoints to a store.
type shipper struct {
	store    *backends.Store
	conflict string
	attempt  int
	node     int // index of this node
	nodes    int // number of nodes whose parts make a step; 0 counts as 1
	stager   string
	log      *slog.Logger
	moved    func(n int64) // receives byte counts during reading; negative for bytes that must be sent again
	reused   func(n int64) // receives byte counts of files that an earlier step has; may be nil
	// own holds the ids of uploads that no other process resumes; may be nil.
	own map[string]bool
	// recall returns the last committed step that this process knows, or nil; may be nil.
	recall func(ctx context.Context) *earlier
	// lock excludes other changes of a step's COMMIT by this process; nil: there are none.
	lock func(ctx context.Context, step int64) (unlock func(), err error)
	// leave receives what is to be removed later; nil: it is removed at once.
	leave func(leftover)
}

// uploadJob is a checkpoint to upload.
type uploadJob struct {
	id      string // names its data in the store; unique to this upload
	step    int64
	samples int64
	metrics map[string]float64
	cursors func(context.Context) Cursors // may wait until they are known; nil: none
	// completed is when the checkpoint was complete; zero: unknown.
	completed time.Time
	tree      tree
	files     []local
	because   string      // the evidence
	quiet     bool        // only a quiet period indicates that it is complete
	sent      *journal    // journal of an earlier attempt; nil: none
	idle      func() bool // reports whether to read files in the idle I/O class; nil: no
}

// send uploads the files, the largest first, and returns them as COMMIT lists them.
func (s *shipper) send(ctx context.Context, c uploadJob, prefix string, before *earlier) ([]File, error) {
	there := make(map[string]backends.Object)
	if c.sent.any() {
		for obj, err := range s.store.List(ctx, prefix+"/") {
			if err != nil {
				return nil, err
			}
			there[obj.Key] = obj
		}
		if tooOld(there) { // retention may be about to remove it
			clear(there)
		}
	}
	files := make([]File, len(c.files))
	order := make([]int, len(c.files))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.files[b].Size, c.files[a].Size) })
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel(s.store, 0))
	for _, i := range order {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() (err error) {
			f := c.files[i]
			key := prefix + "/" + f.Path
			digest, sent := c.sent.digest(key, there[key])
			at := ""
			if sent && there[key].Size == f.Size {
				s.moved(f.Size)
			} else if old, same, err := before.has(gctx, c, f); err != nil {
				return err
			} else if same {
				digest, at = old.Digest, old.At
				s.moved(f.Size)
				if s.reused != nil {
					s.reused(f.Size)
				}
			} else if digest, err = s.sendFile(gctx, c, f, key); err != nil {
				return err
			}
			files[i] = File{Path: f.Path, Size: f.Size, Mode: f.Mode, Modified: f.modified(), Digest: digest, At: at}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return files, context.Cause(ctx)
}

// sendFile uploads one file and returns its digest. The file must be in the listed state before
// and after the upload.
func (s *shipper) sendFile(ctx context.Context, c uploadJob, want local, key string) (string, error) {
	file, err := c.tree.openFile(want.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", changed(want.Path)
	}
	if err != nil {
		return "", err
	}
	defer file.Close() // opened for reading
	still, err := beginSteady(file, want)
	if err != nil {
		return "", err
	}
	defer still.close()
	src := newSummed(giveWay{file, c.idle}, want.Size, digestAlgorithm(s.store), s.moved)
	src.lies = file
	obj, err := s.store.Put(ctx, key, src, want.Size, c.sent.resuming(key))
	var sum backends.Checksum
	if err == nil {
		sum, err = src.sum()
	}
	moved := still.end(func() (bool, error) {
		if err != nil {
			return true, nil // there is nothing to compare with
		}
		return sameBytes(ctx, file, want.Size, sum)
	})
	if moved != nil {
		err = moved
	}
	if err == nil && (obj.Size != want.Size || obj.Sum.Algorithm == sum.Algorithm && obj.Sum != sum) {
		err = backends.Errorf(backends.Corrupt, "write", key,
			"the store has %d bytes with sum %q of the %d with sum %q that were sent", obj.Size, obj.Sum, want.Size, sum)
	}
	src.finish(err != nil)
	if err != nil {
		return "", err
	}
	forgetPages(file)
	c.sent.note(key, sum.String(), obj.Version)
	return sum.String(), nil
}

// sameBytes reports whether a file currently has the given checksum.
func sameBytes(ctx context.Context, file *os.File, size int64, want backends.Checksum) (bool, error) {
	sum := want.Algorithm.New()
	n, err := io.Copy(sum, &obedient{ctx, io.NewSectionReader(file, 0, size)})
	return n == size && backends.SumOf(want.Algorithm, sum) == want, err
}

// forgetPages drops the file from the page cache, because nobody reads it again soon.
func forgetPages(file *os.File) {
	sys.DropCache(file)
}

// unchanged returns an error of kind Changed when an open file differs from its listed state, or
// is open for writing.
func unchanged(file *os.File, want local) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	now := describe(want.Path, info)
	now.Mode = want.Mode
	if busy, err := beingWritten(file); now != want || err == nil && busy {
		return changed(want.Path)
	}
	return nil
}

// missing returns an error for the first file of the COMMIT that is missing or has another size.
func (c *Commit) missing(dir string, sizes map[string]int64) error {
	for _, f := range c.Files {
		key := c.key(dir, f)
		if size, ok := sizes[key]; !ok || size != f.Size {
			return missingFile(key, f)
		}
	}
	return nil
}

func missingFile(key string, f File) error {
	return backends.Errorf(backends.Corrupt, "read", key, "it is missing, or does not have the %d bytes listed in %s", f.Size, commitKey)
}

// holds reports whether a COMMIT lists every file of the checkpoint with the same bytes. It may
// list more files: a trainer that prunes, or is killed meanwhile, leaves a subset.
func (c uploadJob) holds(ctx context.Context, commit Commit, node int) (bool, error) {
	if commit.Data == dataDir+"/"+c.id {
		return true, nil
	}
	listed := make(map[string]File, len(commit.Files))
	for _, f := range commit.Files {
		if f.Node == node {
			listed[f.Path] = f
		}
	}
	for _, f := range c.files {
		if other, ok := listed[f.Path]; !ok || other.Size != f.Size {
			return false, nil
		}
	}
	for _, f := range c.files {
		if same, err := c.holdsFile(ctx, f, listed[f.Path].Digest); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

func (c uploadJob) holdsFile(ctx context.Context, want local, digest string) (bool, error) {
	reported, err := backends.ParseChecksum(digest)
	if err != nil {
		return false, err
	}
	file, err := c.tree.openFile(want.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, changed(want.Path)
	}
	if err != nil {
		return false, err
	}
	defer file.Close() // opened for reading
	if err := unchanged(file, want); err != nil {
		return false, err
	}
	sum := reported.Algorithm.New()
	if _, err := io.Copy(sum, &obedient{ctx, io.NewSectionReader(giveWay{file, c.idle}, 0, want.Size)}); err != nil {
		return false, err
	}
	same := backends.SumOf(reported.Algorithm, sum) == reported
	if same { // otherwise it is read again for the upload
		forgetPages(file)
	}
	return same, unchanged(file, want)
}

// obedient is a reader that fails once its context is cancelled.
type obedient struct {
	ctx context.Context // valid for one call
	io.Reader
}

func (r *obedient) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// readCommit reads the COMMIT of a step's directory.
func readCommit(ctx context.Context, store *backends.Store, dir string) (Commit, error) {
	commit, _, err := readCommitAt(ctx, store, dir)
	return commit, err
}

// readCommitAt is like readCommit, and also returns the object that was read, even when it is
// invalid.
func readCommitAt(ctx context.Context, store *backends.Store, dir string) (Commit, backends.Object, error) {
	p, obj, err := store.ReadAll(ctx, path.Join(dir, commitKey), commitLimit)
	for tries := 1; backends.KindOf(err) == backends.Changed && tries < 5; tries++ { // it was replaced meanwhile
		p, obj, err = store.ReadAll(ctx, path.Join(dir, commitKey), commitLimit)
	}
	if err != nil {
		return Commit{}, obj, err
	}
	commit, err := DecodeCommit(p)
	step, _, ok := parseStepDir(dir)
	if err == nil && (!ok || commit.Step != step) {
		err = backends.Errorf(backends.Corrupt, "read", dir, "its %s is that of step %d", commitKey, commit.Step)
	}
	return commit, obj, err
}

// digestAlgorithm returns the algorithm that the store also reports, if it is cheap. Every file
// can then be compared with what was stored.
func digestAlgorithm(store *backends.Store) backends.Algorithm {
	if a := store.Capabilities().Checksum; a.Combinable() {
		return a
	}
	return backends.CRC64NVME
}

// parallel returns the number of files or ranges to transfer at once. It suits the store and
// limits the memory for buffers of 1 MiB to tens of MiB.
func parallel(store *backends.Store, asked int) int {
	if asked <= 0 {
		asked = store.Workers()
	}
	return min(max(asked, 1), 32)
}

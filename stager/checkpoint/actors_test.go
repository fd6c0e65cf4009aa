package checkpoint

import (
	"context"
	"io"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// These tests run several processes at one destination. One of them stops right before one of its
// store operations, another one does its work, and the first continues. The exploration of
// interleavings covers the cases between these.

// stopping is a store whose process pauses once, before its first operation op on a key that
// contains part, and runs meanwhile. The operations are list, stat, read, put, delete, and
// looked, which is the end of a listing.
type stopping struct {
	backends.Backend
	op, part  string
	meanwhile func()
	once      *sync.Once
}

func stopsAt(b backends.Backend, op, part string, meanwhile func()) stopping {
	return stopping{b, op, part, meanwhile, new(sync.Once)}
}

func (s stopping) at(op, key string) {
	if op == s.op && strings.Contains(key, s.part) {
		s.once.Do(s.meanwhile)
	}
}

func (s stopping) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		s.at("list", prefix)
		var objs []backends.Object
		for obj, err := range s.Backend.List(ctx, prefix) {
			if err != nil {
				yield(obj, err)
				return
			}
			objs = append(objs, obj)
		}
		s.at("looked", prefix)
		for _, obj := range objs {
			if !yield(obj, nil) {
				return
			}
		}
	}
}

func (s stopping) Stat(ctx context.Context, key string) (backends.Object, error) {
	s.at("stat", key)
	return s.Backend.Stat(ctx, key)
}

func (s stopping) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	s.at("read", obj.Key)
	return s.Backend.OpenRange(ctx, obj, off, n)
}

func (s stopping) Delete(ctx context.Context, key string) error {
	s.at("delete", key)
	return s.Backend.Delete(ctx, key)
}

func (s stopping) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	w, err := s.Backend.Create(ctx, key, opts)
	return stoppingWriter{w, s, key}, err
}

type stoppingWriter struct {
	backends.Writer
	s   stopping
	key string
}

func (w stoppingWriter) Commit(ctx context.Context) (backends.Object, error) {
	w.s.at("put", w.key)
	obj, err := w.Writer.Commit(ctx)
	w.s.at("written", w.key)
	return obj, err
}

// pushed pushes a checkpoint of one file "w" and returns the error.
func pushed(t *testing.T, b backends.Backend, step int64, conflict, text string) error {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, map[string]string{"w": text})
	_, err := PushCheckpoint(t.Context(), PushCheckpointConfig{Store: newStore(b), Path: dir, Step: step, Conflict: conflict})
	return err
}

func prune(t *testing.T, b backends.Backend, last int) {
	t.Helper()
	if _, err := Prune(t.Context(), PruneConfig{Store: newStore(b), Keep: Keep{Last: last}, Abandoned: Abandoned}); err != nil {
		t.Errorf("prune: %v", err)
	}
}

// committed checks that the steps are committed, and that every committed step is complete.
func committed(t *testing.T, b *mem.Backend, steps ...int64) {
	t.Helper()
	dirs := commits(b)
	for _, dir := range dirs {
		if err := Verify(t.Context(), newStore(b), dir, func(int64) {}); err != nil {
			t.Errorf("%s is committed and not whole: %v", dir, err)
		}
	}
	for _, step := range steps {
		if !slices.Contains(dirs, stepDir(step, 0)) {
			t.Errorf("committed are %v, want %s among them", dirs, stepDir(step, 0))
		}
	}
}

// ready writes a checkpoint with a completion marker to an output directory.
func ready(t *testing.T, dir, name, text string) {
	t.Helper()
	write(t, filepath.Join(dir, name), map[string]string{"w": text})
	write(t, filepath.Join(dir, name), map[string]string{markerName: ""}) // last
}

// Regression: the second writer replaced the COMMIT and removed the data of the first writer,
// which had just verified it. The first writer then replaced COMMIT.json with its own, which
// named the removed data. Both reported success.
func TestOverwritingWritersLeaveACompleteStep(t *testing.T) {
	for _, before := range []bool{true, false} {
		b := mem.New()
		if before {
			if err := pushed(t, b, 5, ConflictFail, "before"); err != nil {
				t.Fatal(err)
			}
		}
		err := pushed(t, stopsAt(b, "put", commitKey, func() {
			if err := pushed(t, b, 5, ConflictOverwrite, "second"); err != nil {
				t.Errorf("second writer: %v", err)
			}
		}), 5, ConflictOverwrite, "first")
		if err != nil {
			t.Errorf("first writer: %v", err)
		}
		committed(t, b, 5)
	}
}

// Another process, such as an older stager, may remove the data of a step while its COMMIT.json
// is written. The writer checks the data again before it reports success, and uploads what is
// missing.
func TestWriterVerifiesDataAfterCommit(t *testing.T) {
	removeData := func(b *mem.Backend) {
		for _, key := range b.Keys() {
			if strings.Contains(key, "/"+dataDir+"/") {
				if err := b.Delete(t.Context(), key); err != nil {
					t.Error(err)
				}
			}
		}
	}
	for _, op := range []string{"put", "written"} { // right before it exists, and right after
		b := mem.New()
		if err := pushed(t, stopsAt(b, op, commitKey, func() { removeData(b) }), 5, ConflictFail, "one"); err != nil {
			t.Errorf("the writer: %v", err)
		}
		committed(t, b, 5)
	}
	weaken.lookOnce = true
	defer func() { weaken.lookOnce = false }()
	b := mem.New()
	err := pushed(t, stopsAt(b, "put", commitKey, func() { removeData(b) }), 5, ConflictFail, "one")
	if verr := Verify(t.Context(), newStore(b), stepDir(5, 0), func(int64) {}); err != nil || verr == nil {
		t.Errorf("without the second look: got %v and a step that is whole (%v), want success and one that is not", err, verr)
	}
}

// Regression: retention removed the data of a step without a COMMIT that was older than the
// newest one. The step was listed just before it was committed.
func TestPruneSparesStepBeingCommitted(t *testing.T) {
	t.Run("between its data and its COMMIT", func(t *testing.T) {
		b := mem.New()
		if err := pushed(t, b, 9, ConflictFail, "newest"); err != nil {
			t.Fatal(err)
		}
		if err := pushed(t, stopsAt(b, "put", commitKey, func() { prune(t, b, 9) }), 5, ConflictFail, "older"); err != nil {
			t.Errorf("the writer: %v", err)
		}
		committed(t, b, 5, 9)
	})
	t.Run("listed before its COMMIT", func(t *testing.T) {
		b := mem.New()
		if err := pushed(t, b, 9, ConflictFail, "newest"); err != nil {
			t.Fatal(err)
		}
		sent, listed := make(chan struct{}), make(chan struct{})
		wrote := make(chan error)
		go func() {
			wrote <- pushed(t, stopsAt(b, "put", commitKey, func() { close(sent); <-listed }), 5, ConflictFail, "older")
		}()
		<-sent
		prune(t, stopsAt(b, "looked", "step-", func() {
			close(listed)
			if err := <-wrote; err != nil {
				t.Errorf("the writer: %v", err)
			}
		}), 9)
		committed(t, b, 5, 9)
	})
}

// The daemon applies retention after each of its commits.
func TestRetentionSparesStepBeingCommitted(t *testing.T) {
	b, dir := mem.New(), t.TempDir()
	daemon := newUploader(t, dir, b, func(c *Config) { c.Keep.Last = 9 })
	ready(t, dir, "step-9", "newest")
	if err := pushed(t, stopsAt(b, "put", commitKey, func() { pass(t, daemon) }), 5, ConflictFail, "older"); err != nil {
		t.Errorf("the writer: %v", err)
	}
	committed(t, b, 5, 9)
}

// Regression: a restore lists the steps, then a newer step is committed, and retention removes
// the step that the restore chose. The restore failed with "no committed checkpoint is good".
func TestRestoreDuringRetentionFindsNewerStep(t *testing.T) {
	for _, at := range []struct{ op, part string }{{"read", commitKey}, {"list", dataDir}, {"read", "/w"}} {
		t.Run(at.op+" "+at.part, func(t *testing.T) {
			b := mem.New()
			if err := pushed(t, b, 1, ConflictFail, "one"); err != nil {
				t.Fatal(err)
			}
			store := newStore(stopsAt(b, at.op, at.part, func() {
				if err := pushed(t, b, 2, ConflictFail, "two"); err != nil {
					t.Error(err)
				}
				prune(t, b, 1)
			}))
			dir := filepath.Join(t.TempDir(), "restored")
			r, err := Restore(t.Context(), RestoreConfig{Store: store, Dir: dir, Step: Newest})
			if err != nil || r.Step != 2 || len(r.FellBackFrom) > 0 {
				t.Fatalf("restored step %d, passed over %v: %v; want step 2 and none", r.Step, r.FellBackFrom, err)
			}
			equal(t, "restored", read(t, dir), map[string]string{"w": "two"})
		})
	}
}

// A pod that is being deleted drains while its replacement trains from an earlier step. The old
// pod must neither replace what the replacement committed nor remove what it is about to commit.
func TestPodDrainsBesideItsReplacement(t *testing.T) {
	drain := func(t *testing.T, u *Uploader) {
		t.Helper()
		if err := u.Drain(t.Context(), Exit{}); err != nil {
			t.Logf("the old pod: %v", err)
		}
	}
	attempt := func(n int) func(*Config) {
		return func(c *Config) { c.Attempt, c.Conflict, c.Keep.Last = n, ConflictOverwrite, 9 }
	}
	t.Run("both save one step", func(t *testing.T) {
		b, dirs := mem.New(), []string{t.TempDir(), t.TempDir()}
		if err := pushed(t, b, 5, ConflictFail, "before"); err != nil {
			t.Fatal(err)
		}
		replacement := newUploader(t, dirs[1], b, attempt(2))
		ready(t, dirs[1], "step-5", "of the replacement")
		ready(t, dirs[0], "step-5", "of the old pod")
		drain(t, newUploader(t, dirs[0], stopsAt(b, "put", commitKey, func() { pass(t, replacement) }), attempt(1)))
		committed(t, b, 5)
		_, files := restoreNewest(t, b)
		equal(t, "restored", files, map[string]string{"w": "of the replacement"})
	})
	t.Run("the replacement trains an older step again", func(t *testing.T) {
		b, dirs := mem.New(), []string{t.TempDir(), t.TempDir()}
		old := newUploader(t, dirs[0], b, attempt(1))
		ready(t, dirs[0], "step-9", "of the old pod")
		ready(t, dirs[1], "step-5", "of the replacement")
		replacement := newUploader(t, dirs[1], stopsAt(b, "put", commitKey, func() { drain(t, old) }), attempt(2))
		pass(t, replacement)
		committed(t, b, 5, 9)
	})
}

package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
)

func TestCheckpointIsSavedAndRestored(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		write(t, filepath.Join(dir, "checkpoint-500"), model("500"))
		pass(t, u)
		if got := commits(b); len(got) != 0 {
			t.Fatalf("committed %v before it settled", got)
		}
		time.Sleep(DefaultQuietPeriod)
		pass(t, u)
		if got, want := commits(b), []string{"step-00000500"}; !slices.Equal(got, want) {
			t.Fatalf("committed %v, want %v", got, want)
		}
		r, files := restoreNewest(t, b)
		equal(t, "restored", files, model("500"))
		if r.Step != 500 || r.Bytes == 0 || len(r.FellBackFrom) != 0 {
			t.Errorf("restored %+v, want step 500", r)
		}
		s := u.Status()
		if s.Committed == nil || s.Committed.Step != 500 || s.LagSeconds != 0 || len(s.Pending)+len(s.Waiting)+len(s.Failed) != 0 {
			t.Errorf("status %+v, want step 500 committed and nothing left", s)
		}
		if _, err := json.Marshal(s); err != nil {
			t.Error(err)
		}
		if left, _ := os.ReadDir(filepath.Join(dir, snapshotsName)); len(left) != 0 {
			t.Errorf("snapshots left behind: %v", left)
		}
		if got := unreferenced(t, b); len(got) != 0 {
			t.Errorf("unreferenced: %v", got)
		}
		puts := len(b.Keys())
		settled(t, u)
		if got := len(b.Keys()); got != puts {
			t.Errorf("a second pass wrote: %d keys, had %d", got, puts)
		}
	})
}

func TestFileOpenForWritingIsNotUploaded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		write(t, filepath.Join(dir, "step_7"), model("7"))
		f, err := os.OpenFile(filepath.Join(dir, "step_7/model.pt"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		settled(t, u)
		settled(t, u)
		if got := commits(b); len(got) != 0 {
			t.Errorf("committed %v while a file was open for writing", got)
		}
		if w := u.Status().Waiting; len(w) != 1 || !strings.Contains(w[0].Reason, "model.pt is open for writing") {
			t.Errorf("waiting %v, want that model.pt is open", w)
		}
		if _, err := u.Commit(t.Context(), CommitRequest{Path: "step_7", Step: -1}); err == nil {
			t.Error("Commit took a file that is open for writing")
		}
		f.Close()
		settled(t, u)
		if got := commits(b); len(got) != 1 {
			t.Errorf("committed %v after it was closed, want step 7", got)
		}
	})
}

func TestCommitHoldsFastWhatTheTrainerPrunes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, func(c *Config) { c.When = When{Exit: true} })
		write(t, filepath.Join(dir, "deep/epoch-3"), model("3"))
		for range 2 { // the second commit returns the same
			step, err := u.Commit(t.Context(), CommitRequest{Path: filepath.Join(dir, "deep/epoch-3"), Step: -1, SamplesSeen: 77})
			if want := (Step{3, "deep/epoch-3", 3, step.Bytes}); err != nil || step != want {
				t.Fatalf("got %+v, %v; want %+v", step, err, want)
			}
		}
		if err := os.RemoveAll(filepath.Join(dir, "deep")); err != nil {
			t.Fatal(err)
		}
		pass(t, u)
		if err := u.Wait(t.Context(), 3); err != nil {
			t.Error(err)
		}
		r, files := restoreNewest(t, b)
		equal(t, "restored", files, model("3"))
		if r.SamplesSeen != 77 {
			t.Errorf("samples seen %d, want 77", r.SamplesSeen)
		}
		pass(t, u)
		if err := u.Wait(t.Context(), 3); err != nil {
			t.Errorf("after it was pruned: %v", err)
		}
		if err := u.Wait(t.Context(), 4); backends.KindOf(err) != backends.NotExist {
			t.Errorf("waiting for an unknown step: %v, want not-exist", err)
		}
	})
}

func TestCommitRefuses(t *testing.T) {
	dir := t.TempDir()
	u := newUploader(t, dir, mem.New(), nil)
	write(t, dir, map[string]string{"good-1/x": "x", "name/x": "x", ".stager/snap-2/x": "x"})
	outside := t.TempDir()
	write(t, outside, map[string]string{"secret-1/x": "x"})
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "leak-9"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "secret-1/x"), filepath.Join(dir, "leak-9/x")); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"name", "missing-1", "../x-1", "/etc", ".", ".stager/snap-2", "link/secret-1", "leak-9"} {
		if step, err := u.Commit(t.Context(), CommitRequest{Path: p, Step: -1}); err == nil {
			t.Errorf("Commit(%q) = %v, want an error", p, step)
		}
	}
	plain := newUploader(t, t.TempDir(), mem.New(), func(c *Config) { c.Mode = ModeNone })
	write(t, plain.cfg.Dir, map[string]string{"good-1/x": "x"})
	if _, err := plain.Commit(t.Context(), CommitRequest{Path: "good-1", Step: -1}); err == nil {
		t.Error("an output without checkpoints took one")
	}
	if step, err := u.Commit(t.Context(), CommitRequest{Path: "name", Step: 12}); err != nil || step.Step != 12 {
		t.Errorf("a name without a number and step 12: %v, %v", step, err)
	}
}

// One EIO for a link made stager read the checkpoint in place and report that the commit was
// accepted. The trainer then removed the only copy.
func TestCommitFailsWhenTheDiskFails(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, func(c *Config) { c.When = When{Exit: true} })
		link := u.snapshots.hardLink
		u.snapshots.hardLink = func(old, name string) error { return &os.LinkError{Op: "link", Old: old, New: name, Err: syscall.EIO} }
		write(t, filepath.Join(dir, "good-1"), model("1"))
		if _, err := u.Commit(t.Context(), CommitRequest{Path: "good-1", Step: -1}); !errors.Is(err, syscall.EIO) {
			t.Fatalf("got %v, want EIO", err)
		}
		u.snapshots.hardLink = link
		if _, err := u.Commit(t.Context(), CommitRequest{Path: "good-1", Step: -1}); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "good-1")); err != nil {
			t.Fatal(err)
		}
		pass(t, u)
		if got, want := commits(b), []string{stepDir(1, 0)}; !slices.Equal(got, want) {
			t.Errorf("committed %v, want %v", got, want)
		}
	})
}

func TestSymbolicLinksAreFollowedWithinACheckpointOnly(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		write(t, dir, map[string]string{"good-1/shards/x": "x", "bad-2/x": "x", "secret": "s"})
		for link, target := range map[string]string{"good-1/latest": "shards/x", "bad-2/leak": "../secret"} {
			if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
				t.Fatal(err)
			}
		}
		settled(t, u)
		if got, want := commits(b), []string{stepDir(1, 0)}; !slices.Equal(got, want) {
			t.Errorf("committed %v, want %v", got, want)
		}
		_, files := restoreNewest(t, b)
		equal(t, "restored", files, map[string]string{"shards/x": "x", "latest": "x"})
		if s := fmt.Sprint(u.Status().Waiting); !strings.Contains(s, "the symbolic link leak cannot be followed") {
			t.Errorf("waiting %s, want that the link leads out", s)
		}
	})
}

func TestSignsOfCompleteness(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, func(c *Config) { c.QuietPeriod = time.Hour })
		rename := func(from, to string) {
			t.Helper()
			if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
				t.Fatal(err)
			}
		}
		// Renamed from a temporary name that a scan saw.
		write(t, dir, map[string]string{
			"1.tmp/x": "x", "tmp-checkpoint-2/x": "x", "3.orbax-checkpoint-tmp-17/x": "x", "step=4.ckpt.partial": "x", "5/x": "x", "5-unfinished": "",
		})
		pass(t, u)
		if got := commits(b); len(got) != 0 {
			t.Fatalf("committed %v under temporary names", got)
		}
		rename("1.tmp", "1")
		rename("tmp-checkpoint-2", "checkpoint-2")
		rename("3.orbax-checkpoint-tmp-17", "3")
		rename("step=4.ckpt.partial", "step=4.ckpt")
		pass(t, u)
		if got, want := commits(b), []string{stepDir(1, 0), stepDir(2, 0), stepDir(3, 0), stepDir(4, 0)}; !slices.Equal(got, want) {
			t.Errorf("after renames committed %v, want %v", got, want)
		}
		// A marker that contains another step.
		write(t, dir, map[string]string{"ckpt-6/x": "x"})
		write(t, dir, map[string]string{"ckpt-6/.ready": `{"step": 600, "samplesSeen": 42}`})
		pass(t, u)
		if got := commits(b); !slices.Contains(got, stepDir(600, 0)) {
			t.Errorf("with a marker committed %v, want step 600", got)
		}
		if _, ok := b.Get(stepDir(600, 0) + "/data/.ready"); ok {
			t.Error("the marker was sent")
		}
		// A marker that is older than the data.
		write(t, dir, map[string]string{"ckpt-7/.ready": ""})
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(filepath.Join(dir, "ckpt-7/.ready"), old, old); err != nil {
			t.Fatal(err)
		}
		write(t, dir, map[string]string{"ckpt-7/x": "x"})
		settled(t, u)
		if got := commits(b); slices.Contains(got, stepDir(7, 0)) {
			t.Error("committed step 7, whose marker is older than its data")
		}
		if slices.Contains(commits(b), stepDir(5, 0)) {
			t.Error("committed step 5, beside which 5-unfinished stands")
		}
		reasons := fmt.Sprint(u.Status().Waiting)
		for _, want := range []string{".ready is older than x", "5-unfinished still exists"} {
			if !strings.Contains(reasons, want) {
				t.Errorf("waiting %s, want %q", reasons, want)
			}
		}
	})
}

func TestStepClaimedTwiceIsMirroredAndReported(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		write(t, dir, map[string]string{"model-5.pt": "m", "optim-5.pt": "o", "one-6.pt": "1"})
		settled(t, u)
		if got, want := commits(b), []string{stepDir(6, 0)}; !slices.Equal(got, want) {
			t.Errorf("committed %v, want %v", got, want)
		}
		for _, key := range []string{"files/model-5.pt", "files/optim-5.pt"} {
			if _, ok := b.Get(key); !ok {
				t.Errorf("%s is not mirrored", key)
			}
		}
		if s := fmt.Sprint(u.Status().Waiting); !strings.Contains(s, "claim step 5 together") {
			t.Errorf("waiting %s, want that step 5 is claimed twice", s)
		}
	})
}

func TestFileRewrittenInPlaceIsNotCommitted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		path := filepath.Join(dir, "checkpoint-5/model.pt")
		var once sync.Once
		hook := &hooked{Backend: b, onCreate: func(key string) {
			if strings.HasSuffix(key, "/model.pt") {
				once.Do(func() {
					if err := os.WriteFile(path, []byte("other"), 0o640); err != nil {
						t.Error(err)
					}
				})
			}
		}}
		u := newUploader(t, dir, hook, nil)
		write(t, filepath.Join(dir, "checkpoint-5"), model("5"))
		settled(t, u)
		if got := commits(b); len(got) != 0 {
			t.Fatalf("committed %v with a file that changed under way", got)
		}
		settled(t, u)
		_, files := restoreNewest(t, b)
		want := model("5")
		want["model.pt"] = "other"
		equal(t, "after it settled anew", files, want)
		if got := unreferenced(t, b); len(got) != 0 {
			t.Errorf("unreferenced: %v", got)
		}
	})
}

// hooked calls back before objects are created.
type hooked struct {
	backends.Backend
	onCreate func(key string)
}

func (h *hooked) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	h.onCreate(key)
	return h.Backend.Create(ctx, key, opts)
}

// After a crash at any call of an upload, a restart finds the previous step or the new one,
// complete. After the next pass there are no orphans.
func TestCrashAtAnyCallLeavesAValidStep(t *testing.T) {
	old, young := model("100"), model("200")
	for _, lost := range []bool{false, true} {
		for k := 0; ; k++ {
			finished := false
			t.Run(fmt.Sprintf("lost=%v/call=%d", lost, k), func(t *testing.T) {
				inBubble(t, func(t *testing.T) { finished = crash(t, k, lost, old, young) })
			})
			if t.Failed() || finished {
				break
			}
		}
	}
}

// crash uploads step 100, then 200 until call k, and continues in a new process.
func crash(t *testing.T, k int, lost bool, old, young map[string]string) (finished bool) {
	b, dir := mem.New(), t.TempDir()
	u := newUploader(t, dir, b, func(c *Config) { c.Keep.Last = 1 })
	write(t, filepath.Join(dir, "checkpoint-100"), old)
	settled(t, u)
	u.Close()

	dead := &dying{Backend: b, left: k, lost: lost}
	u = newUploader(t, dir, dead, func(c *Config) { c.Keep.Last = 1 })
	write(t, filepath.Join(dir, "checkpoint-200"), young)
	_ = u.Sync(t.Context())
	time.Sleep(DefaultQuietPeriod)
	_ = u.Sync(t.Context())
	finished = !dead.dead()
	u.Close()

	r, files := restoreNewest(t, b)
	switch r.Step {
	case 100:
		equal(t, "the one before", files, old)
	case 200:
		equal(t, "the newest", files, young)
	default:
		t.Errorf("restored step %d", r.Step)
	}
	if len(r.FellBackFrom) != 0 {
		t.Errorf("fell back from %v: a COMMIT was there that is not good", r.FellBackFrom)
	}

	u = newUploader(t, dir, b, func(c *Config) { c.Keep.Last = 1 })
	settled(t, u)
	time.Sleep(Abandoned) // the owner of a step's data is unknown once its COMMIT is gone
	write(t, filepath.Join(dir, "checkpoint-300"), model("300"))
	settled(t, u)
	if got, want := commits(b), []string{stepDir(300, 0)}; !slices.Equal(got, want) {
		t.Errorf("committed at the end: %v, want %v", got, want)
	}
	if got := unreferenced(t, b); len(got) != 0 {
		t.Errorf("unreferenced at the end: %v", got)
	}
	return finished
}

func TestRestartResumesUploads(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		faults := new(conformance.Faults)
		u := newUploader(t, dir, faults.Wrap(b), nil)
		write(t, filepath.Join(dir, "checkpoint-5"), model("5"))
		if _, err := u.Commit(t.Context(), CommitRequest{Path: "checkpoint-5", Step: -1}); err != nil {
			t.Fatal(err)
		}
		id := u.snaps[5].ID
		faults.AddFor(conformance.Commit, stepDir(5, 0)+"/"+partKey(0, 0), conformance.Fail(backends.NoSpace))
		if err := u.Sync(t.Context()); backends.KindOf(err) != backends.NoSpace {
			t.Fatalf("got %v, want no-space", err)
		}
		if s := u.Status(); s.LastError == "" || !reflect.DeepEqual(s.Pending, []int64{5}) {
			t.Errorf("status %+v, want step 5 pending and the error", s)
		}
		u.Close()
		if err := os.RemoveAll(filepath.Join(dir, "checkpoint-5")); err != nil {
			t.Fatal(err)
		}

		again := new(conformance.Faults)
		u = newUploader(t, dir, again.Wrap(b), nil)
		pass(t, u)
		for _, call := range again.Calls(conformance.Create) {
			if strings.Contains(call.Key, id) {
				t.Errorf("sent again: %s", call.Key)
			}
		}
		_, files := restoreNewest(t, b)
		equal(t, "restored", files, model("5"))
	})
}

func TestCommitWithLostResponseIsResolved(t *testing.T) {
	for _, kind := range []backends.Kind{backends.Unavailable, backends.Permission} {
		inBubble(t, func(t *testing.T) {
			b, dir := mem.New(), t.TempDir()
			faults := new(conformance.Faults)
			u := newUploader(t, dir, faults.Wrap(b), nil)
			write(t, filepath.Join(dir, "checkpoint-5"), model("5"))
			faults.AddFor(conformance.Commit, stepDir(5, 0)+"/"+commitKey, conformance.Lost(kind))
			settled(t, u)
			if got := u.Status(); got.Committed == nil || got.Committed.Step != 5 || faults.Left() != 0 {
				t.Errorf("%s: status %+v, want step 5 committed", kind, got)
			}
		})
	}
}

func TestRestartWithoutHintsReuploadsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		write(t, filepath.Join(dir, "checkpoint-5"), model("5"))
		settled(t, u)
		u.Close()
		if err := os.RemoveAll(filepath.Join(dir, private)); err != nil {
			t.Fatal(err)
		}
		faults := new(conformance.Faults)
		u = newUploader(t, dir, faults.Wrap(b), nil)
		settled(t, u)
		if got := faults.Calls(conformance.Create); len(got) != 0 {
			t.Errorf("sent %v", got)
		}
		if s := u.Status(); s.Committed == nil || s.Committed.Step != 5 || len(s.Pending) != 0 {
			t.Errorf("status %+v, want step 5 committed", s)
		}
	})
}

func TestUploadersOfTheSameStep(t *testing.T) {
	for _, tt := range []struct {
		conflict string
		attempt  int
		want     []string // committed
		newest   string   // whose files restore finds
		fails    bool
	}{
		{"", 2, []string{stepDir(5, 0)}, "first", true},
		{ConflictFail, 2, []string{stepDir(5, 0)}, "first", true},
		{ConflictOverwrite, 2, []string{stepDir(5, 0)}, "second", false},
		{ConflictOverwrite, 0, []string{stepDir(5, 0)}, "first", true}, // an older attempt
		{ConflictSuffix, 2, []string{stepDir(5, 0), stepDir(5, 2)}, "second", false},
	} {
		t.Run(fmt.Sprintf("%s attempt %d", tt.conflict, tt.attempt), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, dirs := mem.New(), []string{t.TempDir(), t.TempDir()}
				u := newUploader(t, dirs[0], b, func(c *Config) { c.Attempt = 1 })
				write(t, filepath.Join(dirs[0], "checkpoint-5"), model("first"))
				settled(t, u)
				u = newUploader(t, dirs[1], b, func(c *Config) { c.Attempt, c.Conflict = tt.attempt, tt.conflict })
				write(t, filepath.Join(dirs[1], "checkpoint-5"), model("second"))
				settled(t, u)
				got := commits(b)
				slices.Sort(got)
				if !slices.Equal(got, tt.want) {
					t.Errorf("committed %v, want %v", got, tt.want)
				}
				_, files := restoreNewest(t, b)
				equal(t, "restored", files, model(tt.newest))
				if failed := u.Status().Failed; tt.fails != (len(failed) == 1) {
					t.Errorf("failed %v, want %v", failed, tt.fails)
				}
				err := u.Wait(t.Context(), 5)
				if tt.fails == (err == nil || errors.As(err, new(*ProvisionalError))) {
					t.Errorf("Wait: %v", err)
				}
				if tt.fails != (u.Drain(t.Context(), Exit{Success: true}) != nil) {
					t.Error("Drain does not say what is not safe")
				}
				if got := unreferenced(t, b); len(got) != 0 {
					t.Errorf("unreferenced: %v", got)
				}
			})
		})
	}
}

// Both writers have sent their data when one commits.
func TestConflictLoserLeavesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dirs := mem.New(), []string{t.TempDir(), t.TempDir()}
		first := newUploader(t, dirs[0], b, nil)
		write(t, filepath.Join(dirs[0], "checkpoint-5"), model("first"))
		hook := &hooked{Backend: b, onCreate: func(key string) {
			if strings.HasSuffix(key, "/"+commitKey) {
				settled(t, first)
			}
		}}
		second := newUploader(t, dirs[1], hook, nil)
		write(t, filepath.Join(dirs[1], "checkpoint-5"), model("second"))
		settled(t, second)
		if failed := second.Status().Failed; len(failed) != 1 {
			t.Errorf("failed %v, want the second one", failed)
		}
		_, files := restoreNewest(t, b)
		equal(t, "restored", files, model("first"))
		if got := unreferenced(t, b); len(got) != 0 {
			t.Errorf("unreferenced: %v", got)
		}
	})
}

// A pod that is being deleted may be replacing its own COMMIT while its replacement saves the
// same step. The state that it read before is then outdated.
func TestAttemptOlderThanTheStepIsRejected(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dirs := mem.New(), []string{t.TempDir(), t.TempDir(), t.TempDir()}
		attempt := func(n int) func(*Config) {
			return func(cfg *Config) { cfg.Attempt, cfg.Conflict = n, ConflictOverwrite }
		}
		for i, contents := range []string{"before", "older", "newer"} {
			write(t, filepath.Join(dirs[i], "checkpoint-5"), map[string]string{"one": contents})
		}
		settled(t, newUploader(t, dirs[0], b, attempt(0)))
		newer := newUploader(t, dirs[2], b, attempt(1))
		var begun atomic.Bool
		older := newUploader(t, dirs[1], &hooked{Backend: b, onCreate: func(key string) {
			if strings.Contains(key, "/"+dataDir+"/") && begun.CompareAndSwap(false, true) {
				settled(t, newer)
			}
		}}, attempt(0))
		settled(t, older)
		if failed := older.Status().Failed; len(failed) != 1 || !strings.Contains(failed[0].Reason, "attempt 1 wrote it") {
			t.Errorf("failed %v, want the older one, because attempt 1 wrote the step", failed)
		}
		_, files := restoreNewest(t, b)
		equal(t, "restored", files, map[string]string{"one": "newer"})
	})
}

func TestRetentionKeepsTheLastAndNeverTheNewestGoes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		b.Put(stepDir(90000, 0)+"/"+commitKey, []byte("{torn"))
		b.Put(stepDir(50, 0)+"/data/0123456789abcdef/x", []byte("without COMMIT"))
		b.Put(stepDir(50, 0)+"/notes.txt", []byte("not stager's"))
		b.Put(stepDir(99999, 0)+"/data/0123456789abcdef/x", []byte("newer, without COMMIT"))
		u := newUploader(t, dir, b, func(c *Config) { c.Keep.Last = 2 })
		for _, step := range []string{"100", "200", "300"} {
			write(t, filepath.Join(dir, "checkpoint-"+step), model(step))
			settled(t, u)
			if _, there := b.Get(stepDir(50, 0) + "/data/0123456789abcdef/x"); step == "200" && !there {
				t.Error("another upload was removed, and it may be on its way still")
			} else if step == "200" {
				time.Sleep(Abandoned)
			}
		}
		if got, want := commits(b), []string{stepDir(200, 0), stepDir(300, 0), stepDir(90000, 0)}; !slices.Equal(got, want) {
			t.Errorf("committed %v, want %v: two good ones, and the torn one untouched", got, want)
		}
		for key, want := range map[string]bool{
			stepDir(50, 0) + "/data/0123456789abcdef/x":    false,
			stepDir(50, 0) + "/notes.txt":                  true,
			stepDir(99999, 0) + "/data/0123456789abcdef/x": true,
		} {
			if _, got := b.Get(key); got != want {
				t.Errorf("%s is there: %v, want %v", key, got, want)
			}
		}
	})
}

// A run from scratch uses a directory that holds the higher steps of an earlier run.
func TestRetentionSparesWhatThisRunJustCommitted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dirs := mem.New(), []string{t.TempDir(), t.TempDir()}
		u := newUploader(t, dirs[0], b, nil)
		write(t, filepath.Join(dirs[0], "checkpoint-9000"), model("9000"))
		settled(t, u)
		u = newUploader(t, dirs[1], b, func(c *Config) { c.Keep.Last = 1 })
		for _, step := range []string{"1", "2"} {
			write(t, filepath.Join(dirs[1], "checkpoint-"+step), model(step))
			settled(t, u)
		}
		if got, want := commits(b), []string{stepDir(2, 0), stepDir(9000, 0)}; !slices.Equal(got, want) {
			t.Errorf("committed %v, want %v", got, want)
		}
	})
}

func TestRunSavesWhatComesAndOutlivesAFailingStore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		faults := new(conformance.Faults)
		u := newUploader(t, dir, faults.Wrap(b), nil)
		faults.Add(conformance.Create, slices.Repeat([]conformance.Fault{conformance.Fail(backends.Unavailable)}, 10)...)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			u.run(ctx, nil)
		}()
		write(t, filepath.Join(dir, "checkpoint-1"), model("1"))
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if s := u.Status(); s.LastError == "" || s.LagSeconds == 0 {
			t.Errorf("status %+v, want the store's error and a lag", s)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if s := u.Status(); s.LastError != "" || s.LagSeconds != 0 || len(commits(b)) != 1 {
			t.Errorf("status %+v, commits %v; want it saved in the end", s, commits(b))
		}
		cancel()
		<-ended
	})
}

func TestRunShipsAtOnceWhatWasSaid(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			u.run(ctx, nil)
		}()
		synctest.Wait()
		write(t, filepath.Join(dir, "checkpoint-1"), model("1"))
		start := time.Now()
		if _, err := u.Commit(ctx, CommitRequest{Path: "checkpoint-1", Step: -1}); err != nil {
			t.Fatal(err)
		}
		if err := u.Wait(ctx, 1); err != nil || time.Since(start) > time.Second {
			t.Errorf("after %s: %v, want it saved at once", time.Since(start), err)
		}
		cancel()
		<-ended
	})
}

// With kernel events a rename is detected long before the next scan.
func TestRunSeesARename(t *testing.T) {
	b, dir := mem.New(), t.TempDir()
	u := newUploader(t, dir, b, func(c *Config) { c.QuietPeriod = time.Hour })
	write(t, filepath.Join(dir, "1.tmp"), model("1"))
	pass(t, u)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- u.Run(ctx) }()
	if err := os.Rename(filepath.Join(dir, "1.tmp"), filepath.Join(dir, "1")); err != nil {
		t.Fatal(err)
	}
	for len(commits(b)) == 0 {
		u.mu.Lock()
		changed := u.changed
		u.mu.Unlock()
		if len(commits(b)) > 0 {
			break
		}
		select {
		case <-changed:
		case <-time.After(4 * time.Second):
			t.Fatal("the rename was not seen")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestPlainFilesAreMirroredAsTheySettle(t *testing.T) {
	for mode, prefix := range map[Mode]string{ModeCheckpoint: "files/", ModeNone: ""} {
		inBubble(t, func(t *testing.T) {
			b, dir := mem.New(), t.TempDir()
			u := newUploader(t, dir, b, func(c *Config) { c.Mode = mode })
			write(t, dir, map[string]string{"logs/train.log": "1", "metrics.json.tmp": "{"})
			log, err := os.OpenFile(filepath.Join(dir, "logs/live.log"), os.O_CREATE|os.O_WRONLY, 0o644)
			if err != nil {
				t.Fatal(err)
			}
			settled(t, u)
			if got, want := b.Keys(), []string{prefix + "logs/train.log"}; !slices.Equal(got, want) {
				t.Errorf("mode %s: mirrored %v, want %v", mode, got, want)
			}
			write(t, dir, map[string]string{"logs/train.log": "12"})
			fmt.Fprint(log, "live")
			if err := u.Drain(t.Context(), Exit{Success: true}); err != nil {
				t.Error(err)
			}
			log.Close()
			for key, want := range map[string]string{"logs/train.log": "12", "logs/live.log": "live", "metrics.json.tmp": "{"} {
				if got, _ := b.Get(prefix + key); string(got) != want {
					t.Errorf("mode %s: at the end %s is %q, want %q", mode, key, got, want)
				}
			}
			if m := u.Status().Mirrored; m.Files != 4 || m.Bytes != 8 {
				t.Errorf("mode %s: mirrored %+v, want 4 files of 8 bytes", mode, m)
			}
		})
	}
}

func TestDrainSendsTheNewestFirstAndKeepsItsDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		faults := new(conformance.Faults)
		u := newUploader(t, dir, faults.Wrap(b), func(c *Config) { c.When = When{Exit: true} })
		for _, step := range []string{"1", "2"} {
			write(t, filepath.Join(dir, "checkpoint-"+step), model(step))
			if _, err := u.Commit(t.Context(), CommitRequest{Path: "checkpoint-" + step, Step: -1}); err != nil {
				t.Fatal(err)
			}
		}
		faults.AddFor(conformance.Commit, stepDir(1, 0)+"/"+commitKey, conformance.Hang())
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		start := time.Now()
		err := u.Drain(ctx, Exit{Success: true})
		if err == nil || !strings.Contains(err.Error(), "step 1 (checkpoint-1) is not safe") || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that step 1 is not safe", err)
		}
		if took := time.Since(start); took != 20*time.Second {
			t.Errorf("took %s, want the deadline of 20s", took)
		}
		if got, want := commits(b), []string{stepDir(2, 0)}; !slices.Equal(got, want) {
			t.Errorf("committed %v, want %v", got, want)
		}
		if err := u.Drain(t.Context(), Exit{Success: true}); err != nil || len(commits(b)) != 2 {
			t.Errorf("a second end: %v, committed %v", err, commits(b))
		}
	})
}

func TestDrainDoesNotSpendItsGraceOnAStoreThatRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir, faults := t.TempDir(), new(conformance.Faults)
		u := newUploader(t, dir, faults.Wrap(mem.New()), nil)
		write(t, filepath.Join(dir, "checkpoint-1"), model("1"))
		if _, err := u.Commit(t.Context(), CommitRequest{Path: "checkpoint-1", Step: -1}); err != nil {
			t.Fatal(err)
		}
		faults.Always(conformance.Create, conformance.Fail(backends.Permission))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		start := time.Now()
		err := u.Drain(ctx, Exit{})
		if took := time.Since(start); backends.KindOf(err) != backends.Permission || took > time.Minute {
			t.Errorf("got %v after %s, want kind Permission at once", err, took)
		}
	})
}

func TestDrainUploadsAccordingToWhen(t *testing.T) {
	for _, tt := range []struct {
		when    When
		success bool
		want    int
	}{
		{When{Exit: true}, false, 1},
		{When{Exit: true}, true, 1},
		{When{Success: true}, false, 0},
		{When{Success: true}, true, 1},
		{When{Failure: true}, false, 1},
		{When{Failure: true}, true, 0},
		{When{Interval: time.Hour}, true, 0},
		{When{Interval: time.Second}, true, 1},
	} {
		inBubble(t, func(t *testing.T) {
			b, dir := mem.New(), t.TempDir()
			u := newUploader(t, dir, b, func(c *Config) { c.When = tt.when })
			write(t, filepath.Join(dir, "checkpoint-1"), model("1"))
			settled(t, u)
			if got := len(commits(b)); got != 0 && tt.when.Interval != time.Second {
				t.Errorf("%+v: sent before the end", tt.when)
			}
			if err := u.Drain(t.Context(), Exit{Success: tt.success}); err != nil {
				t.Error(err)
			}
			if got := len(commits(b)); got != tt.want {
				t.Errorf("%+v, success %v: %d committed, want %d", tt.when, tt.success, got, tt.want)
			}
		})
	}
}

func TestDrainWaitsForQuietPeriod(t *testing.T) {
	for _, tt := range []struct {
		exit Exit
		want time.Duration
	}{
		{Exit{Success: true, Gone: true}, 0},
		{Exit{Success: true}, DefaultQuietPeriod},
		{Exit{Gone: true}, DefaultQuietPeriod}, // the trainer may have died between two files
	} {
		inBubble(t, func(t *testing.T) {
			b, dir := mem.New(), t.TempDir()
			u := newUploader(t, dir, b, nil)
			write(t, filepath.Join(dir, "checkpoint-1"), model("1"))
			if err := os.Mkdir(filepath.Join(dir, "version_0"), 0o755); err != nil {
				t.Fatal(err)
			}
			pass(t, u)
			time.Sleep(time.Minute)
			write(t, filepath.Join(dir, "checkpoint-2"), model("2"))
			start := time.Now()
			if err := u.Drain(t.Context(), tt.exit); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took != tt.want {
				t.Errorf("%+v: took %s, want %s", tt.exit, took, tt.want)
			}
			if got := commits(b); len(got) != 2 {
				t.Errorf("%+v: committed %v, want both", tt.exit, got)
			}
		})
	}
}

func TestDrainReportsUnsavedFiles(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		u := newUploader(t, dir, mem.New(), nil)
		write(t, dir, map[string]string{"bad-1/x": "x", "late-2/x": "x"})
		if err := os.Symlink("/etc/passwd", filepath.Join(dir, "bad-1/leak")); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(filepath.Join(dir, "late-2/x"), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = u.Drain(ctx, Exit{Success: true})
		if err == nil || !strings.Contains(err.Error(), "bad-1 is not safe") || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that bad-1 is not safe, and that the time was over for late-2", err)
		}
	})
}

func TestInodeReuseIsNotARename(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		write(t, dir, map[string]string{"1.tmp/x": "x"})
		pass(t, u)
		aside := t.TempDir()
		if err := os.Rename(filepath.Join(dir, "1.tmp"), filepath.Join(aside, "gone")); err != nil {
			t.Fatal(err)
		}
		pass(t, u)
		if err := os.Rename(filepath.Join(aside, "gone"), filepath.Join(dir, "1")); err != nil {
			t.Fatal(err)
		}
		pass(t, u)
		if got := commits(b); len(got) != 0 {
			t.Errorf("committed %v at once", got)
		}
	})
}

func TestNewerOnesMakeAWaitingOneNeedless(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, func(c *Config) { c.Keep.Last = 1 })
		for _, step := range []string{"1", "2"} {
			write(t, filepath.Join(dir, "checkpoint-"+step), model(step))
			if _, err := u.Commit(t.Context(), CommitRequest{Path: "checkpoint-" + step, Step: -1}); err != nil {
				t.Fatal(err)
			}
		}
		settled(t, u)
		if got, want := commits(b), []string{stepDir(2, 0)}; !slices.Equal(got, want) {
			t.Errorf("committed %v, want %v", got, want)
		}
		if err := u.Wait(t.Context(), 1); err == nil {
			t.Error("waiting for the needless one tells of no error")
		}
	})
}

func TestNewSaysWhatCannotWork(t *testing.T) {
	store := newStore(mem.New())
	for _, cfg := range []Config{
		{},
		{Dir: t.TempDir()},
		{Store: store},
		{Dir: t.TempDir(), Store: store, Mode: "both"},
		{Dir: t.TempDir(), Store: store, Conflict: "maybe"},
		{Dir: t.TempDir(), Store: store, Keep: Keep{Last: -1}},
	} {
		if _, err := New(cfg); backends.KindOf(err) != backends.Invalid {
			t.Errorf("New(%+v): %v, want an error of kind invalid", cfg, err)
		}
	}
	dir := filepath.Join(t.TempDir(), "out")
	newUploader(t, dir, mem.New(), nil)
	if info, err := os.Stat(dir); err != nil || info.Mode() != fs.ModeDir|fs.ModeSticky|0o777 {
		t.Errorf("the directory is %v (%v), want one that any trainer may write to, and remove from what is its own", info, err)
	}
	if _, err := New(Config{Dir: dir, Store: store}); err == nil {
		t.Error("two took one directory")
	}
	faults := new(conformance.Faults).Add(conformance.List, conformance.Fail(backends.Permission))
	if _, err := New(Config{Dir: t.TempDir(), Store: newStore(faults.Wrap(mem.New()))}); backends.KindOf(err) != backends.Permission {
		t.Errorf("a destination that says no: %v, want permission", err)
	}
}

// A trainer removes a checkpoint slowly, or is killed meanwhile, while the checkpoint waits to be
// sent. Its marker may be removed last. (A trial with kills found this: a snapshot of five of ten
// files replaced the complete one.)
func TestRemovalInProgressIsNotANewState(t *testing.T) {
	for _, marked := range []bool{true, false} {
		inBubble(t, func(t *testing.T) {
			b, dir := mem.New(), t.TempDir()
			u := newUploader(t, dir, b, func(c *Config) { c.When = When{Exit: true} })
			at := filepath.Join(dir, "step-5")
			write(t, at, model("5"))
			if marked {
				write(t, at, map[string]string{markerName: ""})
			}
			settled(t, u)
			for _, gone := range []string{"model.pt", "empty"} {
				if err := os.Remove(filepath.Join(at, gone)); err != nil {
					t.Fatal(err)
				}
				settled(t, u)
			}
			if err := u.Drain(t.Context(), Exit{}); err != nil {
				t.Error(err)
			}
			_, files := restoreNewest(t, b)
			equal(t, fmt.Sprint("marked ", marked), files, model("5"))
		})
	}
	// No scan had seen it complete.
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		write(t, filepath.Join(dir, "step-5"), model("5"))
		write(t, filepath.Join(dir, "step-5"), map[string]string{markerName: ""})
		later := time.Now().Add(100 * 365 * 24 * time.Hour) // files have real times
		if err := os.Chtimes(filepath.Join(dir, "step-5"), later, later); err != nil {
			t.Fatal(err)
		}
		u := newUploader(t, dir, b, nil)
		settled(t, u)
		if w := fmt.Sprint(u.Status().Waiting); len(commits(b)) > 0 || !strings.Contains(w, "removed from it after its .ready") {
			t.Errorf("committed %v, waiting %s; want that it changed after its marker", commits(b), w)
		}
	})
}

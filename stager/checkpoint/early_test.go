package checkpoint

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

func removeAll(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// heldEarly lists the entries below the snapshot directory.
func heldEarly(t *testing.T, dir string) []string {
	t.Helper()
	held, err := filepath.Glob(filepath.Join(dir, snapshotsName, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// A trainer that saves every five seconds and keeps few checkpoints loses none. Regression: two
// of five were saved, without a warning, and one of four with a single file.
func TestQuickTrainersLoseNoCheckpoint(t *testing.T) {
	for name, c := range map[string]struct {
		keep  int
		files []string // below the checkpoint; none: it is a file
	}{
		"keeps two":            {2, []string{"model.pt", "optim.pt"}},
		"keeps one":            {1, []string{"model.pt", "optim.pt"}},
		"keeps one, raw files": {1, []string{"model.raw", "optim/0.raw"}},
		"keeps one of a file":  {1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, dir := mem.New(), t.TempDir()
				u := newUploader(t, dir, b, nil)
				const steps = 6
				name := func(step int) string {
					if c.files == nil {
						return fmt.Sprintf("epoch=%d.ckpt", step)
					}
					return fmt.Sprintf("step-%d", step)
				}
				for step := 1; step <= steps; step++ {
					if c.files == nil {
						write(t, dir, map[string]string{name(step): zipped(t, name(step))})
					}
					for _, file := range c.files {
						write(t, filepath.Join(dir, name(step)), map[string]string{file: zipped(t, name(step))})
					}
					removeAll(t, dir, name(step-c.keep))
					for range 2 {
						pass(t, u)
						time.Sleep(2500 * time.Millisecond)
					}
				}
				settled(t, u)
				if got := len(commits(b)); got != steps {
					t.Errorf("committed %v, want %d steps; waiting %v", commits(b), steps, u.Status().Waiting)
				}
				if r, _ := restoreNewest(t, b); r.Step != steps {
					t.Errorf("restored step %d, want %d", r.Step, steps)
				}
				if held := heldEarly(t, dir); len(held) > 0 {
					t.Errorf("left behind: %v", held)
				}
			})
		})
	}
}

// A trainer that keeps one checkpoint removes it right after the next one is complete. Files that
// it removes while stager takes its snapshot are taken from what was held before.
func TestCheckpointRemovedDuringItsSnapshotIsSaved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		name := filepath.Join(dir, "checkpoint-1")
		files := map[string]string{"config.json": "{}", "optimizer.pt": zipped(t, "1"), "training_args.bin": zipped(t, "2"), "rng_state.pth": zipped(t, "3")}
		write(t, name, files)
		pass(t, u)
		last := map[string]string{"trainer_state.json": `{"global_step": 1}`}
		write(t, name, last)
		maps.Copy(files, last)
		link := u.snapshots.hardLink
		u.snapshots.hardLink = func(oldname, newname string) error {
			removeAll(t, name, "optimizer.pt")
			removeAll(t, name, "training_args.bin")
			return link(oldname, newname)
		}
		pass(t, u)
		u.snapshots.hardLink = link
		if got := commits(b); len(got) != 1 {
			t.Fatalf("committed %v, want one step; waiting %v", got, u.Status().Waiting)
		}
		r, back := restoreNewest(t, b)
		if got := canonical(back); r.Step != 1 || got != canonical(files) {
			t.Errorf("restored step %d with %s, want step 1 with %s", r.Step, got, canonical(files))
		}
		if held := heldEarly(t, dir); len(held) > 0 {
			t.Errorf("left behind: %v", held)
		}
	})
}

// A checkpoint that the trainer removes before it is complete is logged and counted. What was
// held of it is not saved.
func TestRemovedIncompleteCheckpointIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		later bool
	}{
		"a torn file":                  {map[string]string{"model.pt": "PK\x03\x04torn"}, true},
		"shards without the last":      {map[string]string{"model-00001-of-00002.bin": "x"}, true},
		"removed before a later began": {map[string]string{"model.raw": "x"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var said bytes.Buffer
				b, dir := mem.New(), t.TempDir()
				u := newUploader(t, dir, b, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&said, nil)) })
				write(t, filepath.Join(dir, "step-1"), c.files)
				pass(t, u)
				time.Sleep(time.Second)
				pass(t, u)
				if held := heldEarly(t, dir); len(held) != 1 {
					t.Errorf("held %v, want one", held)
				}
				if c.later {
					write(t, filepath.Join(dir, "step-2"), map[string]string{"model.raw": "x"})
				}
				removeAll(t, dir, "step-1")
				pass(t, u)
				if got := said.String(); strings.Count(got, "was removed before it was complete") != 1 || !strings.Contains(got, "checkpoint=step-1") {
					t.Errorf("the log does not name step-1 once:\n%s", got)
				}
				settled(t, u)
				for _, dir := range commits(b) {
					if dir == stepDir(1, 0) {
						t.Error("step 1 is committed")
					}
				}
				if held := heldEarly(t, dir); len(held) > 0 {
					t.Errorf("left behind: %v", held)
				}
			})
		})
	}
}

// A saved checkpoint that a scan finds half removed, or empty, is not reported as missed.
func TestRemovalOfASavedCheckpointIsNotReported(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		write(t, filepath.Join(dir, "step-1"), map[string]string{"a.raw": "a", "b.raw": "b"})
		settled(t, u)
		for _, name := range []string{"step-1/a.raw", "step-1/b.raw", "step-1"} {
			removeAll(t, dir, name)
			pass(t, u)
		}
		if missed := u.Status().Missed; len(missed) > 0 || len(commits(b)) != 1 {
			t.Errorf("missed %v, committed %v, want step 1 saved", missed, commits(b))
		}
	})
}

// A checkpoint whose files are removed one by one is saved from its early links. Its remaining
// files are not another checkpoint.
func TestCheckpointRemovedFileByFileIsSavedWhole(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		want := map[string]string{"a.raw": "a", "b.raw": "b"}
		write(t, filepath.Join(dir, "step-1"), want)
		pass(t, u)
		time.Sleep(time.Second / 10)
		write(t, filepath.Join(dir, "step-2"), want)
		removeAll(t, dir, "step-1/a.raw")
		for range 3 {
			settled(t, u)
		}
		r, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: filepath.Join(t.TempDir(), "r"), Step: 1})
		if err != nil {
			t.Fatalf("step 1: %v; committed %v", err, commits(b))
		}
		if len(r.Files) != 2 {
			t.Errorf("step 1 has %v, want both files", r.Files)
		}
	})
}

// A trainer removes a checkpoint while stager links its files: the links stay. Regression: they
// were dropped when the first file could not be found, and the checkpoint was lost.
func TestRemovalWhileFilesAreHeldLosesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		write(t, filepath.Join(dir, "step-1"), map[string]string{"a.pt": zipped(t, "a"), "b.pt": zipped(t, "b")})
		pass(t, u)
		link := u.snapshots.hardLink
		u.snapshots.hardLink = func(oldname, newname string) error {
			removeAll(t, dir, "step-1")
			return link(oldname, newname)
		}
		write(t, filepath.Join(dir, "step-1"), map[string]string{"c.pt": zipped(t, "c")})
		pass(t, u)
		u.snapshots.hardLink = link
		write(t, filepath.Join(dir, "step-2"), map[string]string{"a.pt": zipped(t, "a"), "b.pt": zipped(t, "b")})
		settled(t, u)
		settled(t, u)
		if got := commits(b); len(got) != 2 {
			t.Errorf("committed %v, want both steps; missed %v", got, u.Status().Missed)
		}
	})
}

// Early holds stay within their budget of two, even in the next process.
func TestEarlyHoldsStayWithinTheirBudget(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		for i := range 5 {
			write(t, filepath.Join(dir, fmt.Sprintf("step-%d", i)), map[string]string{"model-00001-of-00002.bin": "x"})
			pass(t, u)
			time.Sleep(time.Second)
		}
		if held := heldEarly(t, dir); len(held) != 2 {
			t.Errorf("held %v, want two", held)
		}
		if err := u.Close(); err != nil {
			t.Fatal(err)
		}
		u = newUploader(t, dir, b, nil)
		pass(t, u)
		if held := heldEarly(t, dir); len(held) != 2 {
			t.Errorf("after a restart: held %v, want two", held)
		}
	})
}

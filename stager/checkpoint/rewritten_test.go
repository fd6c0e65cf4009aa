package checkpoint

import (
	"bytes"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// rewriter is a Hugging Face Trainer with a stager beside it. No two of its files have the same time,
// however coarse the clock of the file system is, and all times are close together, however busy the
// machine is.
type rewriter struct {
	t     *testing.T
	b     *mem.Backend
	dir   string
	u     *Uploader
	log   bytes.Buffer
	clock time.Time
}

func newRewriter(t *testing.T) *rewriter {
	t.Helper()
	r := &rewriter{t: t, b: mem.New(), dir: t.TempDir()}
	info, err := os.Stat(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	r.clock = info.ModTime() // real, and not virtual
	r.start(nil)
	return r
}

// start starts a stager, after the end of the one before.
func (r *rewriter) start(more func(*Config)) {
	r.t.Helper()
	if r.u != nil {
		if err := r.u.Close(); err != nil {
			r.t.Fatal(err)
		}
	}
	r.u = newUploader(r.t, r.dir, r.b, func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(&r.log, nil))
		if more != nil {
			more(c)
		}
	})
}

// save writes files of a checkpoint, each a moment later than the one before, in place.
func (r *rewriter) save(name, content string, files ...string) map[string]string {
	r.t.Helper()
	written := make(map[string]string)
	for _, file := range files {
		text := zipped(r.t, content+file)
		if file == "trainer_state.json" {
			text = `{"saved": "` + content + `"}`
		}
		written[file] = text
		write(r.t, filepath.Join(r.dir, name), map[string]string{file: text})
		r.stamp(filepath.Join(name, file), name)
	}
	return written
}

// stamp gives the next time of the clock to a file that was written, and to its directory.
func (r *rewriter) stamp(paths ...string) {
	r.t.Helper()
	r.clock = r.clock.Add(time.Millisecond)
	for _, p := range paths {
		if err := os.Chtimes(filepath.Join(r.dir, p), r.clock, r.clock); err != nil {
			r.t.Fatal(err)
		}
	}
}

// ofTrainer are the files that the Trainer writes, in this order.
var ofTrainer = []string{"model.bin", "optimizer.pt", "training_args.bin", "rng_state.pth", "trainer_state.json"}

// restored requires that step 17 is restored with these files, and that nothing else is there.
func (r *rewriter) restored(want map[string]string) {
	r.t.Helper()
	_, files := restoreNewest(r.t, r.b)
	equal(r.t, "restored", files, want)
	if left := unreferenced(r.t, r.b); len(left) > 0 {
		r.t.Errorf("unreferenced: %v", left)
	}
}

// A Trainer that gets SIGTERM saves the step again in which it was, over the files of the first
// save. The second writing replaces the first one. Regression: it was refused as other content of
// the step, with exit code 75, though nobody else writes to the destination.
func TestStepWrittenAgainReplacesItsCommit(t *testing.T) {
	for name, between := range map[string]func(r *rewriter){
		"by the same process":         func(*rewriter) {},
		"after a restart of stager":   func(r *rewriter) { r.start(nil) },
		"after the first was removed": func(r *rewriter) { removeAll(r.t, r.dir, "checkpoint-17"); pass(r.t, r.u) },
		"after a quiet period":        func(r *rewriter) { settled(r.t, r.u) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRewriter(t)
				first := r.save("checkpoint-17", "first", ofTrainer...)
				pass(t, r.u)
				r.restored(first)
				between(r)
				incomplete := r.save("checkpoint-17", "second", "checkpoint-is-incomplete.txt")
				second := r.save("checkpoint-17", "second", ofTrainer...)
				settled(t, r.u)
				r.restored(first) // the Trainer has not finished
				for file := range incomplete {
					removeAll(t, r.dir, "checkpoint-17/"+file)
					r.stamp("checkpoint-17")
				}
				pass(t, r.u)
				r.restored(second)
				if s := r.u.Status(); len(s.Failed)+len(s.Missed) > 0 {
					t.Errorf("failed %v, missed %v, want nothing", s.Failed, s.Missed)
				}
				if err := r.u.Drain(t.Context(), Exit{Gone: true}); err != nil {
					t.Errorf("drain: %v, want nothing: the step is saved", err)
				}
				if got := strings.Count(r.log.String(), "the trainer wrote this step again"); got != 1 {
					t.Errorf("the log names the replacement %d times, want once:\n%s", got, r.log.String())
				}
			})
		})
	}
}

// A trainer that is killed while it overwrites a checkpoint leaves files of two writings, among
// them the last one of the framework. The saved writing stays, and the run ends with an error until
// a later step is saved.
func TestStepWrittenAgainInPartIsNotMixed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRewriter(t)
		first := r.save("checkpoint-17", "first", ofTrainer...)
		pass(t, r.u)
		r.save("checkpoint-17", "second", "model.bin", "training_args.bin", "rng_state.pth", "trainer_state.json") // not optimizer.pt
		settled(t, r.u)
		r.restored(first)
		err := r.u.Drain(t.Context(), Exit{})
		if err == nil || !strings.Contains(err.Error(), "step 17 (checkpoint-17)") || !strings.Contains(err.Error(), "the saved ones stay") {
			t.Errorf("drain: %v, want that the second writing is not saved", err)
		}
		if got := strings.Count(r.log.String(), "the new files are not saved"); got != 1 {
			t.Errorf("the log names the second writing %d times, want once:\n%s", got, r.log.String())
		}
		next := r.save("checkpoint-18", "next", ofTrainer...)
		settled(t, r.u)
		if err := r.u.Drain(t.Context(), Exit{}); err != nil {
			t.Errorf("drain: %v, want nothing: step 18 is saved", err)
		}
		r.restored(next)
	})
}

// What the trainer says is complete replaces its own COMMIT, whatever the times of the files are.
func TestStepCommittedAgainReplacesItsCommit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRewriter(t)
		files := r.save("checkpoint-17", "first", ofTrainer...)
		pass(t, r.u)
		maps.Copy(files, r.save("checkpoint-17", "second", "model.bin"))
		if _, err := r.u.Commit(t.Context(), CommitRequest{Path: "checkpoint-17", Step: -1}); err != nil {
			t.Fatal(err)
		}
		pass(t, r.u)
		if err := r.u.Wait(t.Context(), 17); err != nil {
			t.Errorf("wait: %v", err)
		}
		r.restored(files)
	})
}

// A later attempt of the job is another writer: the conflict mode decides about the step that both
// wrote, and its other steps are saved.
func TestStepOfAnEarlierAttemptDoesNotBlockALaterOne(t *testing.T) {
	for conflict, want := range map[string]string{ConflictFail: "first", ConflictOverwrite: "second"} {
		t.Run(conflict, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRewriter(t)
				saved := map[string]map[string]string{"first": r.save("checkpoint-17", "first", ofTrainer...)}
				pass(t, r.u)
				r.start(func(c *Config) { c.Attempt, c.Conflict = 1, conflict })
				saved["second"] = r.save("checkpoint-17", "second", ofTrainer...)
				settled(t, r.u)
				r.restored(saved[want])
				if failed := r.u.Status().Failed; (len(failed) > 0) != (conflict == ConflictFail) {
					t.Errorf("failed %v", failed)
				}
				next := r.save("checkpoint-18", "next", ofTrainer...)
				settled(t, r.u)
				r.restored(next)
				if got, want := commits(r.b), []string{stepDir(17, 0), stepDir(18, 0)}; !slices.Equal(got, want) {
					t.Errorf("committed %v, want %v", got, want)
				}
			})
		})
	}
}

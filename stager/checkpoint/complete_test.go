package checkpoint

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// zipped is a file as torch.save writes it.
func zipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create("archive/data.pkl")
	if err == nil {
		_, err = w.Write([]byte(text))
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// commitOf reads the COMMIT of a step.
func commitOf(t *testing.T, b *mem.Backend, step int64) Commit {
	t.Helper()
	c, err := readCommit(t.Context(), newStore(b), stepDir(step, 0))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A pause in the middle of a save leads to a provisional COMMIT, which the complete checkpoint
// replaces. Regression: it was final, and the complete checkpoint was refused.
func TestProvisionalCommitIsReplacedWhenTheCheckpointGrows(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		at := filepath.Join(dir, "step-500")
		whole := map[string]string{"model.pt": zipped(t, "model"), "optim.pt": zipped(t, "optim")}
		write(t, at, map[string]string{"model.pt": whole["model.pt"]})
		settled(t, u)
		if c := commitOf(t, b, 500); !c.Provisional || c.Evidence != "quiet 10s" || len(c.Files) != 1 {
			t.Errorf("the half: provisional %v, evidence %q, %d files, want a provisional one by quiet", c.Provisional, c.Evidence, len(c.Files))
		}
		write(t, at, map[string]string{"optim.pt": whole["optim.pt"]})
		settled(t, u)
		if failed := u.Status().Failed; len(failed) > 0 {
			t.Errorf("failed: %v, want nothing", failed)
		}
		_, files := restoreNewest(t, b)
		equal(t, "the restored checkpoint", files, whole)
		if got := unreferenced(t, b); len(got) > 0 {
			t.Errorf("left behind: %v", got)
		}
		steps, err := Steps(t.Context(), newStore(b))
		if err != nil || len(steps) != 1 || !steps[0].Provisional || steps[0].Evidence != "quiet 10s" {
			t.Errorf("steps: %+v, %v, want the evidence of the provisional one", steps, err)
		}
		// The next checkpoint has the shape of the first partial one, and waits for the second
		// file without a time limit. One shape may come from a killed writer and completes
		// nothing; two equal shapes do.
		write(t, filepath.Join(dir, "step-1000"), map[string]string{"model.pt": whole["model.pt"]})
		settled(t, u)
		time.Sleep(time.Hour)
		settled(t, u)
		if got := commits(b); !slices.Equal(got, []string{stepDir(500, 0)}) {
			t.Errorf("with half of step 1000: committed %v, want step 500 alone", got)
		}
		write(t, filepath.Join(dir, "step-1000"), map[string]string{"optim.pt": whole["optim.pt"]})
		settled(t, u)
		write(t, filepath.Join(dir, "step-1500"), whole)
		pass(t, u)
		time.Sleep(time.Second)
		pass(t, u)
		if !slices.Contains(commits(b), stepDir(1500, 0)) {
			t.Errorf("a second after the whole step 1500: committed %v; waiting %v", commits(b), u.Status().Waiting)
		}
		if c := commitOf(t, b, 1500); c.Provisional || c.Evidence != "shape" {
			t.Errorf("step 1500: provisional %v, evidence %q, want a final one by its shape", c.Provisional, c.Evidence)
		}
	})
}

// A later process with the same directory replaces the provisional COMMIT of the previous
// process. Regression: the complete checkpoint was refused as other content of the step, even
// after the second restart.
func TestProvisionalCommitIsReplacedAfterRestarts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		want := make(map[string]string)
		for _, name := range []string{"a.raw", "b.raw", "c.raw"} {
			write(t, filepath.Join(dir, "step-500"), map[string]string{name: name})
			want[name] = name
			settled(t, u)
			if err := u.Close(); err != nil {
				t.Fatal(err)
			}
			u = newUploader(t, dir, b, nil)
			settled(t, u)
			if failed := u.Status().Failed; len(failed) > 0 {
				t.Errorf("with %s: failed %v, want nothing", name, failed)
			}
		}
		_, files := restoreNewest(t, b)
		equal(t, "the restored checkpoint", files, want)
	})
}

// slowly is a backend in which each object takes a second.
type slowly struct{ backends.Backend }

func (s slowly) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	time.Sleep(time.Second)
	return s.Backend.Create(ctx, key, opts)
}

// A backlog is sent newest first, so the older step is committed last. Regression: restore
// treated it as the newest.
func TestOlderStepThatIsCommittedLaterIsNotTheNewest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, slowly{b}, nil)
		for step := 1; step <= 3; step++ {
			write(t, filepath.Join(dir, fmt.Sprint("step-", step)), map[string]string{"a.raw": fmt.Sprint(step)})
			if _, err := u.Commit(t.Context(), CommitRequest{Path: fmt.Sprint("step-", step), Step: -1}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		pass(t, u)
		if got := len(commits(b)); got != 3 {
			t.Fatalf("committed %v, want three steps", commits(b))
		}
		if r, files := restoreNewest(t, b); r.Step != 3 || files["a.raw"] != "3" {
			t.Errorf("restored step %d with %q, want step 3", r.Step, files)
		}
	})
}

// An uploader does not replace a provisional COMMIT of another uploader.
func TestProvisionalCommitOfAnotherIsNotReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, one, two := mem.New(), t.TempDir(), t.TempDir()
		write(t, filepath.Join(one, "step-500"), map[string]string{"model.txt": "one"})
		settled(t, newUploader(t, one, b, nil))
		write(t, filepath.Join(two, "step-500"), map[string]string{"model.txt": "two"})
		u := newUploader(t, two, b, nil)
		settled(t, u)
		if failed := u.Status().Failed; len(failed) != 1 || !strings.Contains(failed[0].Reason, "other content") {
			t.Errorf("failed: %v, want a conflict", failed)
		}
		_, files := restoreNewest(t, b)
		equal(t, "the restored checkpoint", files, map[string]string{"model.txt": "one"})
	})
}

// A checkpoint that a completion file, a marker or the structure of its files shows to be
// incomplete is never committed. The missing files complete it.
func TestIncompleteCheckpointsAreNeverCommitted(t *testing.T) {
	for name, c := range map[string]struct {
		at           string
		first, rest  map[string]string
		remove, want string
		quiet        bool // the rest needs a quiet period
	}{
		"shards without their index": {
			at: "step-500", first: map[string]string{"model-00001-of-00002.bin": "a"}, rest: map[string]string{"model-00002-of-00002.bin": "b"},
			want: "1 of the 2 files", quiet: true,
		},
		"index before its shards": {
			at: "step-500", first: map[string]string{"pytorch_model.bin.index.json": `{"metadata":{"total_size":1},"weight_map":{"a":"a.bin"}}`},
			rest: map[string]string{"a.bin": "a"}, want: "names \"a.bin\"", quiet: true,
		},
		"index that leads out": {
			at: "step-500", first: map[string]string{"pytorch_model.bin.index.json": `{"weight_map":{"a":"../../../etc/passwd"}}`},
			rest: map[string]string{"pytorch_model.bin.index.json": `{"weight_map":{"a":"a.bin"}}`, "a.bin": "a"}, want: "which is not a file next to it", quiet: true,
		},
		"save at SIGTERM": {
			at: "checkpoint-4", first: map[string]string{"checkpoint-is-incomplete.txt": "", "trainer_state.json": "{}", "optimizer.pt": zipped(t, "o")},
			remove: "checkpoint-is-incomplete.txt", want: "checkpoint-is-incomplete.txt", quiet: true, // as its sign is old by then
		},
		"torch without collectives": {
			at:    "step-500",
			first: map[string]string{"__0_0.distcp": "a", "__0.metadata": "\x80\x02.", "__1_0.distcp": "b"},
			rest:  map[string]string{"__1.metadata": "\x80\x02."}, want: "__1.metadata", quiet: true,
		},
		"torch with its sign": {
			at: "step-500", first: map[string]string{"__0_0.distcp": "a"}, rest: map[string]string{".metadata": "\x80\x02."}, want: ".metadata",
		},
		"a file that breaks off": {
			at: "step-500", first: map[string]string{"model.pt": zipped(t, "model")[:60]}, rest: map[string]string{"model.pt": zipped(t, "model")},
			want: "without its end", quiet: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, dir := mem.New(), t.TempDir()
				u := newUploader(t, dir, b, nil)
				at := filepath.Join(dir, c.at)
				write(t, at, c.first)
				for p := range c.first {
					earlier := time.Unix(1e9, 0)
					if err := os.Chtimes(filepath.Join(at, p), earlier, earlier); err != nil {
						t.Fatal(err)
					}
				}
				settled(t, u)
				time.Sleep(time.Hour)
				settled(t, u)
				if waiting := u.Status().Waiting; len(commits(b)) > 0 || len(waiting) != 1 || !strings.Contains(waiting[0].Reason, c.want) {
					t.Errorf("incomplete: committed %v, waiting %v, want it to wait with %q", commits(b), waiting, c.want)
				}
				write(t, at, c.rest)
				if c.remove != "" {
					if err := os.Remove(filepath.Join(at, c.remove)); err != nil {
						t.Fatal(err)
					}
				}
				pass(t, u)
				if got := len(commits(b)) == 1; got != !c.quiet {
					t.Errorf("at once: committed %v, want %v; waiting %v", got, !c.quiet, u.Status().Waiting)
				}
				settled(t, u)
				if len(commits(b)) != 1 {
					t.Fatalf("complete: committed %v; waiting %v", commits(b), u.Status().Waiting)
				}
				want := maps.Clone(c.first)
				maps.Copy(want, c.rest)
				delete(want, c.remove)
				_, files := restoreNewest(t, b)
				equal(t, "the restored checkpoint", files, want)
			})
		})
	}
}

// A checkpoint that a trainer deletes file by file is not a smaller checkpoint. One that it
// rewrites is a new one.
func TestCheckpointThatIsRemovedIsNotCommitted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		at := filepath.Join(dir, "step-500")
		write(t, at, map[string]string{"a.txt": "a", "b.txt": "b"})
		pass(t, u)
		if err := os.Remove(filepath.Join(at, "a.txt")); err != nil {
			t.Fatal(err)
		}
		settled(t, u)
		settled(t, u)
		if waiting := u.Status().Waiting; len(commits(b)) > 0 || len(waiting) != 1 || !strings.Contains(waiting[0].Reason, "a.txt was removed") {
			t.Errorf("committed %v, waiting %v, want that a.txt was removed", commits(b), waiting)
		}
		write(t, at, map[string]string{"b.txt": "anew"})
		info, err := os.Stat(filepath.Join(at, "b.txt"))
		if err != nil {
			t.Fatal(err)
		}
		later := info.ModTime().Add(time.Second)
		if err := os.Chtimes(filepath.Join(at, "b.txt"), later, later); err != nil {
			t.Fatal(err)
		}
		settled(t, u)
		settled(t, u)
		if len(commits(b)) != 1 {
			t.Errorf("written anew: committed %v; waiting %v", commits(b), u.Status().Waiting)
		}
	})
}

// COMMITs of earlier versions have no evidence and are final.
func TestCommitWithoutEvidenceIsFinal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		write(t, filepath.Join(dir, "step-500"), map[string]string{"model.txt": "model"})
		write(t, filepath.Join(dir, "step-500"), map[string]string{markerName: ""})
		settled(t, u)
		c := commitOf(t, b, 500)
		if c.Evidence != "marker" || c.Provisional {
			t.Errorf("evidence %q, provisional %v, want a final one by its marker", c.Evidence, c.Provisional)
		}
		c.Evidence = ""
		text, err := encode(c)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeCommit(text); err != nil || got.Provisional || strings.Contains(string(text), "evidence") {
			t.Errorf("got %+v, %v, want a final one", got, err)
		}
	})
}

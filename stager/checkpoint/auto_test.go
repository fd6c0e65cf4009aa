package checkpoint

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// rewriteInPlace truncates and writes files, in the order of names, at the given time.
func rewriteInPlace(t *testing.T, dir string, at int, text func(name string) string, names ...string) {
	t.Helper()
	for i, name := range names {
		write(t, dir, map[string]string{name: text(name)})
		when := time.Unix(1_800_000_000+int64(at), int64(i))
		if err := os.Chtimes(filepath.Join(dir, name), when, when); err != nil {
			t.Fatal(err)
		}
	}
}

// Each complete state of a checkpoint that is overwritten in place, under a name without a
// number, is saved as a step. Regression: it was mirrored as plain files, and restore found
// nothing.
func TestNamesWithoutNumbersAreSaved(t *testing.T) {
	for name, written := range map[string][]string{
		"a file":                 {"last.pt"},
		"of Lightning":           {"last.ckpt"},
		"a directory":            {"latest/model.pt", "latest/optim.pt"}, // confirmed by the saves before it
		"Keras":                  {kerasWeights, kerasMetadata},
		"Keras in its directory": {"backup/" + kerasWeights, "backup/" + kerasMetadata},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, dir := mem.New(), t.TempDir()
				u := newUploader(t, dir, b, nil)
				text := func(i int) func(string) string {
					return func(name string) string {
						if filepath.Ext(name) == ".json" {
							return fmt.Sprintf(`{"epoch": %d}`, i)
						}
						return zipped(t, fmt.Sprint(name, i))
					}
				}
				for i := range 3 {
					rewriteInPlace(t, dir, 60*i, text(i), written...)
					pass(t, u)
					time.Sleep(time.Second)
					pass(t, u)
					settled(t, u)
				}
				if got := len(commits(b)); got != 3 {
					t.Errorf("committed %v, want three steps; waiting %v, failed %v", commits(b), u.Status().Waiting, u.Status().Failed)
				}
				r, files := restoreNewest(t, b)
				if r.Step != 1_800_000_120_000 || r.Provisional {
					t.Errorf("restored step %d, provisional %v, want that of the last time, final", r.Step, r.Provisional)
				}
				for _, file := range written {
					if got := files[filepath.Base(file)]; got != text(2)(file) {
						t.Errorf("%s: got %.40q, want its last content", file, got)
					}
				}
				// The same state is not another step, even after a restart.
				if err := u.Close(); err != nil {
					t.Fatal(err)
				}
				settled(t, newUploader(t, dir, b, nil))
				if got := len(commits(b)); got != 3 {
					t.Errorf("after a restart: committed %v, want the same three", commits(b))
				}
			})
		})
	}
}

// Keras overwrites the weights first, and then the file that records their epoch. New weights
// with the old epoch are not a checkpoint.
func TestHalfOverwrittenKerasBackupIsNotSaved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		text := func(name string) string {
			if name == kerasMetadata {
				return "{}"
			}
			return zipped(t, name)
		}
		rewriteInPlace(t, dir, 0, text, kerasWeights, kerasMetadata)
		settled(t, u)
		rewriteInPlace(t, dir, 60, text, kerasWeights)
		settled(t, u)
		settled(t, u)
		if got := len(commits(b)); got != 1 {
			t.Errorf("committed %v, want the first state alone", commits(b))
		}
	})
}

// Keras 3.0 writes only the weights. Each of its backups is saved, provisionally, and the log says
// once why, and what to do. Several do not confirm one another: a later Keras that is stopped before
// it writes the metadata of its first backup, and again after a restart, leaves the same. Once there
// was metadata, weights alone are not saved. Regression: no backup of Keras 3.0 was saved.
func TestKerasBackupWithoutMetadataStaysProvisional(t *testing.T) {
	for name, at := range map[string]string{"in the output": "", "in its directory": "backup/"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var said bytes.Buffer
				b, dir := mem.New(), t.TempDir()
				u := newUploader(t, dir, b, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&said, nil)) })
				save := func(i int, names ...string) {
					rewriteInPlace(t, dir, 60*i, func(name string) string {
						if path.Base(name) == kerasMetadata {
							return "{}"
						}
						return zipped(t, fmt.Sprint(name, i))
					}, names...)
					settled(t, u)
					settled(t, u)
				}
				for i := range 3 {
					save(i, at+kerasWeights)
				}
				if got, want := provisionals(t, b), "1800000000000 1800000060000 1800000120000"; got != want {
					t.Errorf("provisional are %q, want %q; waiting %v", got, want, u.Status().Waiting)
				}
				if r, files := restoreNewest(t, b); files[kerasWeights] != zipped(t, fmt.Sprint(at+kerasWeights, 2)) {
					t.Errorf("restored step %d with %q, want the last weights", r.Step, slices.Sorted(maps.Keys(files)))
				}
				const warning = "later ones will not make it final"
				if got := strings.Count(said.String(), warning); got != 1 || !strings.Contains(said.String(), "update Keras to 3.1") {
					t.Errorf("%d warnings, want one that names Keras 3.1:\n%s", got, said.String())
				}
				save(3, at+kerasWeights, at+kerasMetadata)
				save(4, at+kerasWeights)
				if err := os.Remove(filepath.Join(dir, at+kerasMetadata)); err != nil {
					t.Fatal(err)
				}
				save(5, at+kerasWeights)
				all := commits(b)
				if c := commitOf(t, b, 1_800_000_180_000); len(all) != 4 || c.Provisional || c.Evidence != "sign "+kerasMetadata {
					t.Errorf("committed %v, provisional %v by %q, want a fourth that is final, and no more", all, c.Provisional, c.Evidence)
				}
			})
		})
	}
}

// A trainer that ends well has written all of its backup.
func TestKerasBackupWithoutMetadataIsFinalAtTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		for i := range 2 {
			rewriteInPlace(t, dir, 60*i, func(name string) string { return zipped(t, fmt.Sprint(name, i)) }, "backup/"+kerasWeights)
			settled(t, u)
			settled(t, u)
		}
		if err := u.Drain(t.Context(), Exit{Success: true, Gone: true}); err != nil {
			t.Fatal(err)
		}
		if got := provisionals(t, b); got != "1800000000000" {
			t.Errorf("provisional are %q, want the first alone", got)
		}
	})
}

// If there are numbered checkpoints, here or at the destination, last.ckpt is another name for
// one of them and is only mirrored.
func TestNamesWithoutNumbersBesideOthersAreMirrored(t *testing.T) {
	for _, here := range []bool{true, false} {
		inBubble(t, func(t *testing.T) {
			b, dir := mem.New(), t.TempDir()
			u := newUploader(t, dir, b, nil)
			write(t, dir, map[string]string{"epoch=1-step=100.ckpt": zipped(t, "x"), "last.ckpt": zipped(t, "x")})
			settled(t, u)
			if !here {
				if err := os.Remove(filepath.Join(dir, "epoch=1-step=100.ckpt")); err != nil {
					t.Fatal(err)
				}
			}
			settled(t, u)
			settled(t, u)
			if got := commits(b); len(got) != 1 || got[0] != stepDir(100, 0) {
				t.Errorf("committed %v, want step 100 alone", got)
			}
			if _, ok := b.Get(filesDir + "/last.ckpt"); !ok {
				t.Errorf("last.ckpt is not mirrored; there are %v", b.Keys())
			}
		})
	}
}

func TestAutoCandidates(t *testing.T) {
	for want, names := range map[string][]string{
		"last.pt":            {"last.pt", "best.pt", "train.log"},
		"latest":             {"latest.weights.h5", "training_metadata.json"},
		"checkpoint_last.pt": {"checkpoint_best.pt", "checkpoint_last.pt"},
		"ckpt.pt":            {"ckpt.pt"},
		"best.pth":           {"best.pth", "model.pt"},
		"":                   {"model.pt", "tokenizer.json", "latest", "last.pt.tmp", "blast.pt", ".last.pt"},
	} {
		dir := t.TempDir()
		for _, name := range names {
			write(t, dir, map[string]string{name: "x"})
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := autoCandidate(entries); got != want {
			t.Errorf("of %q: got %q, want %q", names, got, want)
		}
	}
}

// Config.Numbers selects the numbering. By name, a file without a number is a plain file; by
// time, numbers in names are ignored.
func TestStepsFollowTheConfig(t *testing.T) {
	const written = 1_800_000_000_000
	for _, c := range []struct {
		steps Numbering
		file  string
		want  string // directory of the COMMIT
	}{
		{NumberAuto, "last.pt", stepDir(written, 0)},
		{NumberAuto, "epoch-3.pt", stepDir(3, 0)},
		{NumberByName, "last.pt", ""},
		{NumberByName, "epoch-3.pt", stepDir(3, 0)},
		{NumberByTime, "last.pt", stepDir(written, 0)},
		{NumberByTime, "epoch-3.pt", stepDir(written, 0)},
	} {
		t.Run(fmt.Sprint(c.steps, " ", c.file), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, dir := mem.New(), t.TempDir()
				u := newUploader(t, dir, b, func(cfg *Config) { cfg.Numbers = c.steps })
				rewriteInPlace(t, dir, 0, func(string) string { return zipped(t, "x") }, c.file)
				settled(t, u)
				settled(t, u)
				if got := strings.Join(commits(b), " "); got != c.want {
					t.Errorf("committed %q, want %q; waiting %v", got, c.want, u.Status().Waiting)
				}
				if _, mirrored := b.Get(filesDir + "/" + c.file); mirrored != (c.want == "") {
					t.Errorf("mirrored %v, want %v; there are %v", mirrored, c.want == "", b.Keys())
				}
			})
		})
	}
}

// With steps by time, several names are separate steps, even if they share a number.
func TestStepsByTimeOfNamesThatShareANumber(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, func(cfg *Config) { cfg.Numbers = NumberByTime })
		rewriteInPlace(t, dir, 0, func(name string) string { return zipped(t, name) }, "a-3.pt", "b-3.pt")
		if err := os.Chtimes(filepath.Join(dir, "b-3.pt"), time.Unix(1_800_000_060, 0), time.Unix(1_800_000_060, 0)); err != nil {
			t.Fatal(err)
		}
		settled(t, u)
		settled(t, u)
		if got := len(commits(b)); got != 2 {
			t.Errorf("committed %v, want two steps; waiting %v", commits(b), u.Status().Waiting)
		}
	})
}

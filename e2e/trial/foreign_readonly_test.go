package trial

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// readOnlySays is what a command says of a server that denies writes.
const readOnlySays = "permission denied: the share or the directory is read-only for this user"

// refusals are what the commands that write do where nothing may be written, by command: nil where
// everything may be. restore reads what was saved there by other means.
func (w *foreignWalk) refusals() map[string]func(*testing.T) {
	if !w.readOnly {
		return nil
	}
	return map[string]func(*testing.T){
		"push":          func(t *testing.T) { w.refused(t, 77, "push", w.small(t), w.url("new")) },
		"push --commit": func(t *testing.T) { w.refused(t, 77, "push", "--commit", "--step", "5", w.small(t), w.url("ckpt")) },
		"stager commit": w.commitRefused,
	}
}

// refused runs a command that writes. It must end with a code, and say why in one line.
func (w *foreignWalk) refused(t *testing.T, want int, args ...string) {
	t.Helper()
	_, log := w.exits(t, want, args...)
	said := 0
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "stager: ") && strings.Contains(line, readOnlySays) {
			said++
		}
	}
	if said != 1 {
		t.Errorf("%s: %d lines say %q, want 1:\n%s", strings.Join(args, " "), said, readOnlySays, log)
	}
	w.unchanged(t)
}

// unchanged checks that nothing was written, not even a directory.
func (w *foreignWalk) unchanged(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(w.disk)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := e.Name(); name != "data" && name != "saved" {
			t.Errorf("%s was made on a server that denies writes", name)
		}
	}
}

// small is a directory with one small file.
func (w *foreignWalk) small(t *testing.T) string {
	t.Helper()
	dir := w.path("small")
	if err := writeNoise(filepath.Join(dir, "a"), 10); err != nil {
		t.Fatal(err)
	}
	return dir
}

// commitRefused has a trainer say that a checkpoint is complete that cannot be saved: the trainer
// learns it, and so does whoever waits for stager.
func (w *foreignWalk) commitRefused(t *testing.T) {
	log := w.trainerCommits(t, w.small(t), "ckpt", "5s", 75)
	for _, want := range []string{"stager: not saved within 5s", "outputs are not saved", readOnlySays} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not say %q:\n%s", want, log)
		}
	}
	w.unchanged(t)
}

// save saves two checkpoints on the server's disk, for the commands that read them.
func (w *foreignWalk) save(t *testing.T, source string) {
	t.Helper()
	for _, step := range []string{"5", "6"} {
		w.exits(t, 0, "push", "--commit", "--step", step, source, filepath.Join(w.disk, "saved"))
	}
}

// restoreSaved restores where there is no checkpoint, and then one that others saved.
func (w *foreignWalk) restoreSaved(t *testing.T, source string) {
	if _, log := w.exits(t, 66, "restore", w.url("ckpt"), w.path("none")); !strings.Contains(log, "there is no committed checkpoint") {
		t.Errorf("restoring where nothing is:\n%s", log)
	}
	w.save(t, source)
	w.exits(t, 0, "restore", w.url("saved"), w.path("ckpt"))
	equalTrees(t, source, w.path("ckpt"))
	w.exits(t, 0, "checkpoints", "--verify", w.url("saved"))
}

package stager

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stager-dev/stager/stager/plan"
)

// The list of a source's objects is written before the window looks at what an earlier process left
// in its directory. Together they exceeded the window's size.
func TestListOfObjectsHasTheRoomThatFilesLeave(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "train")
	in := &input{spec: plan.Input{Path: dir, Window: &plan.Window{Size: 1 << 20}}}
	room := func() int64 {
		t.Helper()
		file, room, err := in.scratch()
		if err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
		return room
	}
	if got := room(); got != 1<<20 {
		t.Errorf("with no directory: got room for %d bytes, want 1 MiB", got)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "ready"), 0o755), os.WriteFile(filepath.Join(dir, "ready", "a"), make([]byte, 900<<10), 0o644)); err != nil {
		t.Fatal(err)
	}
	if got, most := room(), int64(124<<10); got <= 0 || got > most {
		t.Errorf("with 900 KiB left by an earlier process: got room for %d bytes, want at most %d", got, most)
	}
}

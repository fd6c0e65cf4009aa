package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Another program replaced a directory by a FIFO during a walk: stager blocked on it and never
// ended.
func TestWalkWaitsForNoFIFO(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var walked, failed []string
	err = fs.WalkDir(FS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			failed = append(failed, name)
			return nil
		}
		if walked = append(walked, name); name == "a" {
			b := filepath.Join(dir, "b")
			return errors.Join(os.Remove(b), unix.Mkfifo(b, 0o666))
		}
		return nil
	})
	if want := []string{".", "a", "b", "c"}; err != nil || !slices.Equal(walked, want) {
		t.Errorf("walked %v (%v), want %v", walked, err, want)
	}
	if want := []string{"b"}; !slices.Equal(failed, want) {
		t.Errorf("failed at %v, want %v", failed, want)
	}
	if _, err := fs.ReadDir(FS(root), "../"+filepath.Base(dir)); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a path that leads out: got %v, want %v", err, fs.ErrInvalid)
	}
}

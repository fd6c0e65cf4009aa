package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// Regression: FIFOs of a checkpoint were omitted silently.
func TestContentless(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(
		os.MkdirAll(filepath.Join(dir, "step-1", "sub"), 0o755),
		os.WriteFile(filepath.Join(dir, "step-1", "model"), []byte("x"), 0o644),
		syscall.Mkfifo(filepath.Join(dir, "step-1", "sub", "pipe"), 0o644),
		os.Symlink("sub/pipe", filepath.Join(dir, "step-1", "to-pipe")),
		os.Symlink("model", filepath.Join(dir, "step-1", "to-model")),
	); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(filepath.Join(dir, "step-1"))
	if err != nil {
		t.Fatal(err)
	}
	tr := tree{root: root}
	defer tr.close()
	want := []Omission{{"sub/pipe", "a FIFO"}, {"to-pipe", "a FIFO"}}
	if got := tr.contentless(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

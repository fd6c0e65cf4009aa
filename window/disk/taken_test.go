package disk

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestTakenCountsBlocksOfAllBelow(t *testing.T) {
	dir := t.TempDir()
	taken := func(path string) int64 {
		t.Helper()
		n, err := Taken(path)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if got := taken(filepath.Join(dir, "none")); got != 0 {
		t.Errorf("no such directory: got %d bytes, want 0", got)
	}
	err := errors.Join(
		os.MkdirAll(filepath.Join(dir, "a/b"), 0o755),
		os.Symlink("/usr", filepath.Join(dir, "link")), // is not followed
	)
	if err != nil {
		t.Fatal(err)
	}
	before := taken(dir)
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "a/b/file"), make([]byte, 5000), 0o644),
		os.Link(filepath.Join(dir, "a/b/file"), filepath.Join(dir, "a/same")),
		os.WriteFile(filepath.Join(dir, "sparse"), nil, 0o644),
		os.Truncate(filepath.Join(dir, "sparse"), 1<<30),
	)
	if err != nil {
		t.Fatal(err)
	}
	if got := taken(dir) - before; got != 8192 {
		t.Errorf("a file of 5000 bytes with two names, and a hole: got %d bytes, want 8192", got)
	}
}

package disk

import (
	"os"
	"path/filepath"
	"testing"
)

// A second link stands for a file system that ignores case: both names are one file there, too.
func TestDirComparesNamesByTheirFile(t *testing.T) {
	dir := t.TempDir()
	f, err := Open(dir, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lower := filepath.Join(dir, Private, "lock")
	if f.OneName() {
		t.Error("got true where only LOCK is there, want false")
	}
	if err := os.WriteFile(lower, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if f.OneName() {
		t.Error("got true where lock is another file, want false")
	}
	if err := os.Remove(lower); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(dir, Private, LockName), lower); err != nil {
		t.Fatal(err)
	}
	if !f.OneName() {
		t.Error("got false where lock is the same file, want true")
	}
}

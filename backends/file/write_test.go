package file

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"testing"
)

// A directory that another process removed between two calls of the kernel was reported as a file in its place.
func TestDirThatWasThereForAMoment(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := errors.Join(root.Mkdir("dir", 0o755), root.WriteFile("file", nil, 0o644), root.Symlink("nothing", "link")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{"gone": fs.ErrNotExist, "dir": fs.ErrNotExist, "file": syscall.ENOTDIR, "link": syscall.ENOTDIR, "file/dir": syscall.ENOTDIR} {
		if err := unmade(root, name); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
}

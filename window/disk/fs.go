package disk

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// FS returns the tree below root for [fs.WalkDir] and [fs.ReadDir]. Unlike root.FS it never blocks:
// if a directory was replaced by a FIFO after its parent was listed, opening it is an error.
func FS(root *os.Root) fs.FS { return tree{root} }

type tree struct{ root *os.Root }

func (t tree) Open(name string) (fs.File, error) { return t.open(name, 0) }

func (t tree) open(name string, flags int) (*os.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	file, err := t.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|flags, 0)
	return file, t.named(name, err)
}

// named replaces the path "." in an error about the root itself by the root's path.
func (t tree) named(name string, err error) error {
	var path *fs.PathError
	if name == "." && errors.As(err, &path) {
		return &fs.PathError{Op: "open", Path: t.root.Name(), Err: path.Err}
	}
	return err
}

// OpenDir opens the directory of a root. Its error contains the path of the directory; an error of
// root.Open contains only ".".
func OpenDir(root *os.Root) (*os.File, error) {
	dir, err := root.Open(".")
	return dir, tree{root}.named(".", err)
}

func (t tree) Stat(name string) (fs.FileInfo, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrInvalid}
	}
	info, err := t.root.Stat(name)
	return info, t.named(name, err)
}

// ReadDir returns the entries of a directory, sorted by name. If it fails, it also returns the
// entries that it read before the error.
func (t tree) ReadDir(name string) ([]fs.DirEntry, error) {
	dir, err := t.open(name, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	entries, err := dir.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, errors.Join(err, dir.Close())
}

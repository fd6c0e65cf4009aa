package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// FS returns the tree below root for [fs.WalkDir] and [fs.ReadDir]. Unlike root.FS it never blocks:
// if a directory was replaced by a FIFO after its parent was listed, opening it is an error.
func FS(root *os.Root) fs.FS { return tree{root: root} }

// ListedFS is FS, except that ReadDir also returns entries that were removed after the kernel
// listed their names. Their Type is 0, and their Info is [fs.ErrNotExist]. FS omits them, as
// os.File.ReadDir does for files of a root.
func ListedFS(root *os.Root) fs.FS { return tree{root, true} }

type tree struct {
	root   *os.Root
	listed bool // ReadDir returns all names that were listed
}

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
	return dir, tree{root: root}.named(".", err)
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
	entries, err := t.readDir(dir)
	return entries, errors.Join(err, dir.Close())
}

func (t tree) readDir(dir *os.File) (entries []fs.DirEntry, err error) {
	var names []string
	if t.listed {
		if names, err = dir.Readdirnames(-1); err == nil {
			_, err = dir.Seek(0, io.SeekStart)
		}
		if err != nil {
			return nil, err
		}
	}
	entries, err = dir.ReadDir(-1)
	found := make(map[string]bool, len(names))
	if len(names) > 0 {
		for _, e := range entries {
			found[e.Name()] = true
		}
	}
	for _, name := range names {
		if !found[name] && err == nil {
			entries = append(entries, removed(name))
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// removed is the entry of a name that was listed and then removed.
type removed string

func (r removed) Name() string      { return string(r) }
func (r removed) IsDir() bool       { return false }
func (r removed) Type() fs.FileMode { return 0 }
func (r removed) Info() (fs.FileInfo, error) {
	return nil, &fs.PathError{Op: "lstat", Path: string(r), Err: fs.ErrNotExist}
}

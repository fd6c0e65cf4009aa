package disk

import (
	"errors"
	"os"

	"github.com/stager-dev/stager/backends/sys"
)

// Scratch creates a file without a name on the disk of a directory, which it creates if needed. No
// other process can open the file, and it disappears when the process ends. So Scratch needs no
// lock: it works also while another stager uses the directory.
func Scratch(path string) (file *os.File, err error) {
	root, err := MakeRoot(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	dir, err := OpenDir(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close() // opened for its name
	fd, err := retry(func() (int, error) {
		return sys.OpenUnnamed(int(dir.Fd()))
	})
	if err == nil {
		return os.NewFile(uintptr(fd), path), nil
	}
	return Unnamed(root, ".stager-scratch-"+Unique()) // the file system does not support that
}

// Unnamed creates a file and removes its name, which must be unique.
func Unnamed(root *os.Root, name string) (*os.File, error) {
	file, err := OpenFile(root, name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := root.Remove(name); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

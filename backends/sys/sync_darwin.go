package sys

import (
	"errors"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// SyncTree returns when the files below root are on the disk, and their names. dir is root's own
// directory, open. macOS has no call that waits for a whole file system, so each file and directory
// is flushed to the disk, and then the disk's own cache, which Sync of package os does.
func SyncTree(root *os.Root, dir *os.File) error {
	if err := syncDir(root, "."); err != nil {
		return err
	}
	return dir.Sync()
}

func syncDir(root *os.Root, name string) error {
	return synced(root, name, unix.O_DIRECTORY, func(dir *os.File) error {
		entries, err := dir.ReadDir(-1)
		for _, e := range entries {
			below := path.Join(name, e.Name())
			switch {
			case err != nil:
			case e.IsDir():
				err = syncDir(root, below)
			case e.Type().IsRegular():
				err = synced(root, below, 0, func(*os.File) error { return nil })
			}
		}
		return err
	})
}

// synced opens a file without following a link or blocking, calls f, and flushes the file. It ignores
// a file that was removed meanwhile.
func synced(root *os.Root, name string, flags int, f func(*os.File) error) error {
	file, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|flags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close() // opened to sync it
	if err := f(file); err != nil {
		return err
	}
	return unix.Fsync(int(file.Fd()))
}

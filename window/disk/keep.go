package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Keep gives a file of Scratch a name below a directory, so that a later process can open it by Kept.
// An object that has the name is removed. Only the holder of the directory's lock may call Keep. The
// error is errors.ErrUnsupported if the file system cannot do that.
func Keep(file *os.File, path, name string) error {
	dir, base, err := parentOf(path, name)
	if err != nil {
		return err
	}
	defer dir.Close() // opened for its name
	if err := removeAt(dir, base); err != nil {
		return err
	}
	err = retryErr(func() error {
		return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", file.Fd()), int(dir.Fd()), base, unix.AT_SYMLINK_FOLLOW)
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EXDEV) || errors.Is(err, fs.ErrPermission) {
		err = errors.ErrUnsupported // its name was removed, or there is no /proc
	}
	if err != nil {
		return &fs.PathError{Op: "link", Path: name, Err: err}
	}
	return nil
}

// Kept opens a file of Keep for reading. It returns an error that is fs.ErrNotExist if there is none,
// or if what has the name is not a regular file of this user that has no other name and that no other
// user may write to.
func Kept(path, name string) (*os.File, error) {
	dir, base, err := parentOf(path, name)
	if err != nil {
		return nil, err
	}
	defer dir.Close() // opened for its name
	file, err := openAt(dir, base, name, os.O_RDONLY, 0)
	var odd *NotRegularError
	if errors.As(err, &odd) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil {
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || int(st.Uid) != os.Geteuid() || st.Nlink != 1 || info.Mode()&0o022 != 0 {
			err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Unkeep removes the name of a file of Keep, or whatever else has it. Only the holder of the
// directory's lock may call Unkeep. A missing name is not an error.
func Unkeep(path, name string) error {
	dir, base, err := parentOf(path, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close() // opened for its name
	return removeAt(dir, base)
}

// parentOf opens the parent directory of a name below a directory.
func parentOf(path, name string) (dir *os.File, base string, err error) {
	root, err := OpenRoot(path)
	if err != nil {
		return nil, "", err
	}
	dir, base, err = parent(root, name)
	return dir, base, errors.Join(err, root.Close())
}

package disk

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// RestoreMode gives one of stager's own directories or files, called name below root, the mode that
// right returns for its present one. It returns the mode that another program had given it, and
// whether it was changed. It leaves alone what belongs to another user, anything else than a
// directory or a regular file, and a file that has a second name. A missing name is no error.
//
// Other programs, such as a trainer, may run as the same user as stager. If one of them takes the
// owner's access from a directory, every later process fails there.
func RestoreMode(root *os.Root, name string, right func(fs.FileMode) fs.FileMode) (was fs.FileMode, restored bool, err error) {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	st, known := info.Sys().(*syscall.Stat_t)
	own := known && int(st.Uid) == os.Geteuid() && (info.IsDir() || info.Mode().IsRegular() && st.Nlink == 1)
	was = info.Mode().Perm()
	want := right(info.Mode()).Perm()
	if !own || want == was {
		return was, false, nil
	}
	return was, true, root.Chmod(name, want)
}

package disk

import (
	"errors"
	"io/fs"
	"syscall"
)

// Taken returns the bytes that a directory and all below it take of its disk, by the file system's
// count of blocks: 0 if there is no such directory. A file with several names counts once. Files
// that come and go meanwhile may count or not.
func Taken(path string) (sum int64, err error) {
	root, err := OpenRoot(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	seen := make(map[uint64]bool) // inodes of files with several names
	err = fs.WalkDir(FS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) { // lost+found of a volume
			return nil
		}
		if err != nil {
			return err
		}
		info, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		if !d.IsDir() && st.Nlink > 1 {
			if seen[st.Ino] {
				return nil
			}
			seen[st.Ino] = true
		}
		sum += st.Blocks * 512
		return nil
	})
	return sum, err
}

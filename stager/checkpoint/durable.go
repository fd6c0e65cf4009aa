package checkpoint

import (
	"errors"
	"os"
	"path"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// syncNames returns when the disk has the names in directories below root. File systems
// that know no sync of directories are passed over.
func syncNames(root *os.Root, dirs ...string) error {
	for _, dir := range dirs {
		file, err := root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		err = file.Sync()
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP) {
			err = nil
		}
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// dirsOf returns the directories of paths below base, each once, the deepest first, and
// base as the last.
func dirsOf(base string, paths []string) (dirs []string) {
	seen := make(map[string]bool)
	for _, p := range paths {
		for dir := path.Dir(path.Join(base, p)); dir != base && !seen[dir] && dir != "."; dir = path.Dir(dir) {
			seen[dir] = true
			dirs = append(dirs, dir)
		}
	}
	slices.SortFunc(dirs, func(a, b string) int { return len(b) - len(a) })
	return append(dirs, base)
}

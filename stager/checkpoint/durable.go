package checkpoint

import (
	"os"
	"path"
	"slices"

	"github.com/stager-dev/stager/window/disk"
)

// syncNames syncs the directory entries of dirs, which are relative to root.
func syncNames(root *os.Root, dirs ...string) error {
	for _, dir := range dirs {
		if err := disk.SyncNames(root, dir); err != nil {
			return err
		}
	}
	return nil
}

// dirsOf returns the directories of paths below base, each once and deepest first. base is the
// last.
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

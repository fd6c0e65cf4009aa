package memory

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// unlimited is less than the value that cgroup version 1 reports without a limit.
const unlimited = 1 << 60

// Groups returns the directories of the control groups that may limit the memory of a process, and
// of their parents. root is the mount point of the hierarchies, and own the file that lists the
// groups of the process, such as /proc/self/cgroup. In a container, the root of the visible
// hierarchy often is its own group.
func Groups(root, own string) []string {
	roots := []string{root, filepath.Join(root, "unified"), filepath.Join(root, "memory")}
	all := slices.Clone(roots)
	text, err := os.ReadFile(own)
	if err != nil {
		return all
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		_, rest, _ := strings.Cut(lines.Text(), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		if !ok || controllers != "" && !slices.Contains(strings.Split(controllers, ","), "memory") {
			continue
		}
		in := roots[:2]
		if controllers != "" {
			in = roots[2:]
		}
		for group = filepath.Clean("/" + group); group != "/"; group = filepath.Dir(group) {
			for _, root := range in {
				all = append(all, filepath.Join(root, group))
			}
		}
	}
	return all
}

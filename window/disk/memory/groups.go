package memory

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// unlimited is less than what version 1 reports where there is no limit.
const unlimited = 1 << 60

// Groups returns the directories of the control groups that may limit the memory of a
// process, and of those around them. root is where the hierarchies are mounted, and own
// the process's file that names its groups. In a container its own group often is the root
// of what it sees.
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

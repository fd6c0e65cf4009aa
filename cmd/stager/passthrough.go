package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// misplacedFlag returns an error if the command of run or wrap begins with "-" and does not follow
// "--": it is a flag of stager with a typing error, not the name of a program.
func (c *cli) misplacedFlag(root *kong.Node) error {
	for command, words := range map[string][]string{"run": c.Run.Command, "wrap": c.Wrap.Command} {
		if len(words) == 0 || words[0] == "--" || !strings.HasPrefix(words[0], "-") {
			continue
		}
		name, _, _ := strings.Cut(words[0], "=")
		hint := ""
		if flag := nearestFlag(childOf(root, command), name); flag != "" {
			hint = fmt.Sprintf(", did you mean %q?", flag)
		}
		return fmt.Errorf("unknown flag %s%s; put the command after --, and see stager %s --help", name, hint, command)
	}
	return nil
}

// nearestFlag returns the flag of a command that a word with a typing error means, or "".
func nearestFlag(node *kong.Node, word string) string {
	nearest, least := "", 3
	for ; node != nil; node = node.Parent {
		for _, f := range node.Flags {
			if d := distance("--"+f.Name, word); d < least {
				nearest, least = "--"+f.Name, d
			}
		}
	}
	return nearest
}

// distance returns how many bytes must be inserted, removed or replaced to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		above := slices.Clone(row)
		row[0] = i + 1
		for j := range len(b) {
			replaced := above[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, above[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// helpCmd documents "stager help COMMAND", which argsOf turns into "stager COMMAND --help".
type helpCmd struct {
	Command []string `arg:"" optional:"" help:"Command to explain. Default: all commands are listed."`
}

// Run is not reached.
func (helpCmd) Run() error { return nil }

// krmName is a binary name that means "stager krm": kustomize before 5.6 passes no arguments to a
// function.
const krmName = "stager-krm"

// argsOf returns the arguments of a command line. words[0] is the name of the binary.
func argsOf(words []string) []string {
	if filepath.Base(words[0]) == krmName {
		return append([]string{"krm"}, words[1:]...)
	}
	if filepath.Base(words[0]) == pluginComplete {
		return append([]string{"complete", "--cobra", "--"}, words[1:]...)
	}
	if topic, ok := askedForHelp(words); ok {
		return append(topic, "--help")
	}
	return words[1:]
}

// askedForHelp returns the words after "help", if a command line begins with it.
func askedForHelp(words []string) ([]string, bool) {
	if len(words) < 2 || words[1] != "help" {
		return nil, false
	}
	return words[2:], true
}

// unknownTopic returns an error if the words after "help" are not the name of a command. Flags end
// the name.
func unknownTopic(root *kong.Node, words []string) error {
	node := root
	for i, word := range words {
		if strings.HasPrefix(word, "-") {
			return nil
		}
		child := childOf(node, word)
		if child == nil {
			return fmt.Errorf("there is no command %q, did you mean %q?", strings.Join(words[:i+1], " "), nearestTopic(node, word))
		}
		node = child
	}
	return nil
}

// nearestTopic returns the command line that shows the help that a word below a node means: of the
// command that is spelled like it, of the only one there, or of the node itself.
func nearestTopic(node *kong.Node, word string) string {
	meant := node
	visible := slices.DeleteFunc(slices.Clone(node.Children), func(c *kong.Node) bool { return c.Hidden })
	if len(visible) == 1 {
		meant = visible[0]
	}
	least := 3
	for _, c := range visible {
		if d := distance(c.Name, word); d < least {
			meant, least = c, d
		}
	}
	root := node
	for root.Parent != nil {
		root = root.Parent
	}
	return root.Name + " help" + strings.TrimPrefix(meant.FullPath(), root.Name)
}

package main

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// screen is the number of lines on a terminal, with some allowance for an enlarged window.
const screen = 30

// TestHelpFitsAScreen checks all commands: each has a group in "stager --help", and its text,
// examples and arguments come before its flags and fit a screen.
func TestHelpFitsAScreen(t *testing.T) {
	var c cli
	var out strings.Builder
	parser := kong.Must(&c, kong.Name("stager"), kong.Description(about), kong.DefaultEnvars("STAGER"),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.ExplicitGroups(groups),
		kong.Writers(&out, &out), kong.Exit(func(int) {}))
	for _, node := range parser.Model.Leaves(true) {
		words := strings.Fields(strings.TrimPrefix(node.Path(), "stager "))
		top := node
		for top.Parent != parser.Model.Node {
			top = top.Parent
		}
		if top.Group == nil {
			t.Errorf("%s: no group, want one of cli.go", node.Path())
		}
		out.Reset()
		_, _ = parser.Parse(append(words, "--help")) // required arguments are missing
		before, _, found := strings.Cut(out.String(), "\nFlags:\n")
		if !found {
			t.Errorf("%s --help: no flags in %q", node.Path(), out.String())
			continue
		}
		if got := strings.Count(before, "\n"); got > screen {
			t.Errorf("%s --help: %d lines before the flags, want at most %d", node.Path(), got, screen)
		}
	}
}

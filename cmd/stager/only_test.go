package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// Each command line is understood, refused and explained in the same words whether the grammar has
// all commands or only the one that the line begins with.
func TestCommandLinesMeanTheSameWithOneCommand(t *testing.T) {
	lines := [][]string{
		{},
		{"--help"},
		{"--version"},
		{"nonsense"},
		{"prefetcj", "a", "b"},
		{"--quiet", "ls", "x"},
		{"ls", "--quiet", "x"},
		{"-q"},
		{"pai"},
		{"pai", "nonsense"},
		{"krm", "x"},
		{"next", "train", "--wait", "soon"},
		{"prefetch", "a", "b", "--verify", "never"},
		{"prefetch", "a", "b", "--conections", "3"},
		{"run", "--nonsense"},
		{"Prefetch", "a", "b"},
		{"next", "--help", "ack"},
		{"ls", "x", "--log-level", "loud"},
	}
	leaves := parser(t, new(cli)).Model.Leaves(false)
	for _, node := range leaves {
		words := strings.Fields(strings.TrimPrefix(node.Path(), "stager "))
		for _, more := range [][]string{{"--help"}, {"a"}, {"a", "b", "c"}, {"--nonsense", "a"}} {
			lines = append(lines, slices.Concat(words, more))
		}
		lines = append(lines, slices.Concat([]string{"help"}, words), slices.Concat([]string{"--quiet"}, words))
	}
	said := func(words []string, leave kong.Option) string {
		var out bytes.Buffer
		k, err := kong.New(new(cli), kong.Name("stager"), kong.Description(about), kong.DefaultEnvars("STAGER"), kong.Exit(func(int) {}), kong.Writers(&out, &out),
			kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.ExplicitGroups(groups), kong.Vars{"version": "v"}, leave)
		if err != nil {
			t.Fatal(err)
		}
		command, err := k.Parse(words)
		if err != nil {
			return out.String() + err.Error()
		}
		return out.String() + command.Command()
	}
	pruned := 0
	for _, line := range lines {
		words := argsOf(append([]string{"stager"}, line...))
		if got, want := said(words, only(words)), said(words, kong.IgnoreFields()); got != want {
			t.Errorf("stager %s: got %q, want %q", strings.Join(line, " "), got, want)
		}
		if k := parser(t, new(cli), only(words)); len(k.Model.Children) == 1 {
			pruned++
		}
	}
	if pruned < len(lines)/2 {
		t.Errorf("got %d of %d grammars with one command, want more than half", pruned, len(lines))
	}
}

// The commands that know all others keep them.
func TestOverviewsKnowAllCommands(t *testing.T) {
	all := len(parser(t, new(cli)).Model.Children)
	for _, name := range overviews {
		if got := len(parser(t, new(cli), only([]string{strings.ToLower(name)})).Model.Children); got != all {
			t.Errorf("%s: got %d commands, want %d", name, got, all)
		}
	}
}

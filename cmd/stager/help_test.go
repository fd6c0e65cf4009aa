package main

import (
	"errors"
	"io/fs"
	"regexp"
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

func TestUnknownHelpTopics(t *testing.T) {
	root := parser(t, new(cli)).Model.Node
	for topic, want := range map[string]string{
		"":                   "",
		"prefetch":           "",
		"pai convert":        "",
		"prefetch --include": "",
		"prefetch x":         `there is no command "prefetch x", did you mean "stager help prefetch"?`,
		"prefetcj":           `there is no command "prefetcj", did you mean "stager help prefetch"?`,
		"nothing-like-it":    `there is no command "nothing-like-it", did you mean "stager help"?`,
		"pai conver":         `there is no command "pai conver", did you mean "stager help pai convert"?`,
		"pai x y":            `there is no command "pai x", did you mean "stager help pai convert"?`,
		"manifests webhok":   `there is no command "manifests webhok", did you mean "stager help manifests webhook"?`,
		"manifests x":        `there is no command "manifests x", did you mean "stager help manifests"?`,
	} {
		got := ""
		if err := unknownTopic(root, strings.Fields(topic)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("stager help %s: got %q, want %q", topic, got, want)
		}
	}
}

// exampleCommand finds the commands of stager in a line of shell, up to what follows them.
var exampleCommand = regexp.MustCompile(`(?:^|\$\(|&& |do |\| |exec ')stager ((?:'[^']*'|"[^"]*"|[^'"|&;>#)])*)`)

var shellWord = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)

// Each command in the examples of a help is understood: its flags and arguments exist.
func TestExamplesOfHelpAreUnderstood(t *testing.T) {
	seen := 0
	for _, node := range parser(t, new(cli)).Model.Leaves(true) {
		for line := range strings.Lines(node.Detail) {
			example, indented := strings.CutPrefix(line, "    ")
			if !indented {
				continue
			}
			for _, found := range exampleCommand.FindAllStringSubmatch(example, -1) {
				var words []string
				for _, word := range shellWord.FindAllString(found[1], -1) {
					words = append(words, strings.NewReplacer("'", "", `"`, "", "$JOB_COMPLETION_INDEX", "0", "$e", "0").Replace(word))
				}
				seen++
				if _, err := parser(t, new(cli)).Parse(argsOf(append([]string{"stager"}, words...))); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: stager %s: %v", node.Path(), strings.Join(words, " "), err)
				}
			}
		}
	}
	if seen < 60 {
		t.Errorf("got %d commands in examples, want 60 or more", seen)
	}
}

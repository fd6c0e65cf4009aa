package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// manualLine is a line of a page, joined with the lines that it continues by a backslash.
type manualLine struct {
	place string // file:line
	text  string
	block bool // in a block of code; else a sentence
}

// manualLines returns the lines of the README, of the manual and of the examples.
func manualLines(t *testing.T) (lines []manualLine) {
	t.Helper()
	const root = "../.."
	files := []string{filepath.Join(root, "README.md")}
	for _, dir := range []string{"docs", "examples"} {
		if err := filepath.WalkDir(filepath.Join(root, dir), func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() && filepath.Ext(path) != ".json" {
				files = append(files, path)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, linesOf(name, string(text))...)
	}
	return lines
}

// prompted finds the blocks that show commands after a prompt, among what they print.
var prompted = regexp.MustCompile(`(?m)^\$ `)

// linesOf returns the lines of a file, without what blocks print and the blocks of text.
func linesOf(name, text string) (lines []manualLine) {
	page := filepath.Ext(name) == ".md"
	fence, start, joined := "", 0, ""
	var block []manualLine
	endBlock := func() {
		printed := page && slices.ContainsFunc(block, func(l manualLine) bool { return prompted.MatchString(l.text) })
		for _, l := range block {
			if !printed || prompted.MatchString(l.text) {
				lines = append(lines, l)
			}
		}
		block = nil
	}
	for i, line := range strings.Split(text, "\n") {
		marker, fenced := strings.CutPrefix(line, "```")
		if page && fenced {
			endBlock()
			if fence == "" {
				fence = "```" + marker
			} else {
				fence = ""
			}
			continue
		}
		if fence == "```text" {
			continue
		}
		code := !page || fence != "" || strings.HasPrefix(line, "    ")
		if joined == "" {
			start = i + 1
		}
		before, more := strings.CutSuffix(line, `\`)
		joined += before
		if more && code {
			continue
		}
		l := manualLine{fmt.Sprintf("%s:%d", name, start), joined, code}
		joined = ""
		if code {
			block = append(block, l)
			continue
		}
		endBlock()
		lines = append(lines, l)
	}
	endBlock()
	return lines
}

// typed finds the commands of stager in a line of shell, of Python or of a comment that shows one.
var typed = regexp.MustCompile(`(?:^ *|^\$ |^# {2,}|[|;&(] ?|\b(?:do|then|exec|env) |-- |-c ['"]|^(?:[A-Z_0-9]+=\S+ )+)(?:sudo )?(?:/|\./)?stager ([a-z-](?:'[^']*'|"[^"]*"|[^'"|&;>#)` + "`" + `])*)`)

// quoted finds the commands of stager that a sentence quotes.
var quoted = regexp.MustCompile("`stager ([^`|;&>#]+)")

// placeholders are words that stand for the reader's own values, each with a value that fits.
var placeholders = strings.NewReplacer("'", "", `"`, "", "$JOB_COMPLETION_INDEX", "0", "$SLURM_PROCID", "0", "$SLURM_NTASKS", "1", "$e", "0",
	"I/N", "0/1", "DURATION", "1m", "…", "", "...", "")

// omitted finds the errors of a command line without some of its arguments and values.
var omitted = regexp.MustCompile(`^(expected |missing |--\S+: expected .* (got "EOL"|got "N"$)|unexpected argument COMMAND$)`)

// understood returns the error of a command line. A sentence may omit arguments and values.
func understood(k *kong.Kong, c *cli, text string, sentence bool) error {
	words := []string{"stager"}
	for _, word := range shellWord.FindAllString(text, -1) {
		if word = placeholders.Replace(word); word != "" {
			words = append(words, word)
		}
	}
	_, err := k.Parse(argsOf(words))
	if misplaced := c.misplacedFlag(k.Model.Node); misplaced != nil {
		return misplaced
	}
	if err != nil && sentence && omitted.MatchString(err.Error()) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// commands returns the commands of stager in a line, without the name of the program.
func (l manualLine) commands() (commands []string) {
	pattern := quoted
	if l.block {
		pattern = typed
	}
	for _, found := range pattern.FindAllStringSubmatch(strings.ReplaceAll(l.text, " 2>", " >"), -1) {
		commands = append(commands, found[1])
	}
	return commands
}

// fault returns an error for the commands in a line that are not understood.
func (l manualLine) fault(k *kong.Kong, c *cli) (err error) {
	for _, command := range l.commands() {
		if wrong := understood(k, c, command, !l.block); wrong != nil {
			err = errors.Join(err, fmt.Errorf("%s: stager %s: %w", l.place, command, wrong))
		}
	}
	return err
}

// Each command of stager in a block or a sentence of the manual is understood: the command and its
// flags exist, and its arguments fit.
func TestManualCommandsAreUnderstood(t *testing.T) {
	c, seen := new(cli), 0
	k := parser(t, c)
	for _, line := range manualLines(t) {
		if strings.HasPrefix(line.place, "docs/reference/cli.md") {
			continue // TestExamplesOfHelpAreUnderstood
		}
		seen += len(line.commands())
		if err := line.fault(k, c); err != nil {
			t.Error(err)
		}
	}
	if seen < 140 {
		t.Errorf("got %d commands in the manual, want 140 or more", seen)
	}
}

func TestManualMistakesAreFound(t *testing.T) {
	c := new(cli)
	k := parser(t, c)
	for _, page := range []struct{ text, want string }{
		{"Run `stager nonsense`.", `a.md:1: unexpected argument nonsense`},
		{"Run `stager prefetch`, `stager ls s3://b/` and `stager COMMAND --help`.", ""},
		{"Run `stager ls --nonsense`.", "a.md:1: unknown flag --nonsense"},
		{"```sh\nstager prefetch \\\n  s3://b/\n```", "a.md:2: expected \"<dst>\""},
		{"```sh\nstager ls s3://b/ | head\n```", ""},
		{"```sh\nA=b stager ls s3://b/ s3://c/ 2>log\n```", "a.md:2: unexpected argument s3://c/"},
		{"    kubectl exec p -- /stager status --nonsense", "a.md:1: unknown flag --nonsense"},
		{"```\n$ stager ls s3://b/\nstager nonsense\n```\n\n```text\nstager nonsense\n```", ""},
	} {
		got := ""
		for _, line := range linesOf("a.md", page.text) {
			if err := line.fault(k, c); err != nil {
				got = err.Error()
			}
		}
		place, fault, _ := strings.Cut(page.want, ": ")
		if (got == "") != (page.want == "") || !strings.HasPrefix(got, place) || !strings.Contains(got, fault) {
			t.Errorf("%q: got %q, want %q", page.text, got, page.want)
		}
	}
}

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stager-dev/stager/e2e/reference"
)

// typedLine is a line of a script that runs a command: its exit code, if it is given, and its words.
var typedLine = regexp.MustCompile(`(?m)^(?:(?:stager|nobody) (\d+)|start \S+) (.+)$`)

// casesElsewhere are cases of commands that no script can have.
var casesElsewhere = map[string]string{
	"nack: good runs":    "window_nack.txtar runs it in a loop of the shell",
	"webhook: good runs": "it needs a certificate and a client: package stager/admission and the cluster suite run it",
}

// mistakes is how many mistakes of each command the scripts show.
const mistakes = 3

// Of each command the scripts show its help, a good run, mistakes, and a dry run if it has one.
func TestScriptsHaveEachCaseOfEachCommand(t *testing.T) {
	t.Parallel()
	line := commandLine(t)
	files, err := filepath.Glob(scripts + "/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var typed [][2]string // exit code, words
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range typedLine.FindAllStringSubmatch(string(text), -1) {
			typed = append(typed, [2]string{found[1], found[2] + " "})
		}
	}
	for _, cmd := range line.Commands {
		got := casesOf(cmd.Name, typed)
		want := map[string]int{"help": 1, "good runs": 1, "mistakes": mistakes}
		if slices.ContainsFunc(cmd.Flags, func(f reference.Flag) bool { return f.Name == "dry-run" }) {
			want["dry runs"] = 1
		}
		for what, n := range want {
			if _, elsewhere := casesElsewhere[cmd.Name+": "+what]; elsewhere != (got[what] < n) {
				t.Errorf("stager %s: the scripts have %d %s, want %d", cmd.Name, got[what], what, n)
			}
		}
	}
}

// casesOf counts the cases of a command.
func casesOf(command string, typed [][2]string) map[string]int {
	got := make(map[string]int)
	for _, line := range typed {
		code, words := line[0], line[1]
		help := strings.HasPrefix(words, "help "+command+" ")
		switch own := strings.HasPrefix(words, command+" "); {
		case !own && !help:
		case code == "0" && (help || strings.Contains(words, " --help ")):
			got["help"]++
		case !own:
		case strings.Contains(words, " --dry-run ") && code == "0":
			got["dry runs"]++
		case code == "0" || code == "":
			got["good runs"]++
		default:
			got["mistakes"]++
		}
	}
	return got
}

package e2e

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stager-dev/stager/e2e/reference"
)

// changesNothing are commands that print, or show what is there. A file that they write is one that
// the user named for it.
var changesNothing = []string{
	"ls", "cat", "du", "fanout", "checkpoints", "status", "kubectl status", "kubectl logs", "explain", "krm", "pai convert",
	"manifests webhook", "manifests map", "manifests rbac", "version", "help", "completion",
	"webhook", // answers requests
}

// Whoever does not know a command tries it with --dry-run. A command that has none says why.
func TestCommandsThatChangeSomethingHaveADryRun(t *testing.T) {
	t.Parallel()
	line := commandLine(t)
	left := slices.Clone(changesNothing)
	for _, cmd := range line.Commands {
		left = slices.DeleteFunc(left, func(name string) bool { return name == cmd.Name })
		got := "missing"
		switch {
		case slices.ContainsFunc(cmd.Flags, func(f reference.Flag) bool { return f.Name == "dry-run" }):
			got = "a flag"
		case strings.Contains(cmd.Long, "Has no --dry-run: "):
			got = "a reason"
		}
		if quiet := slices.Contains(changesNothing, cmd.Name); quiet != (got == "missing") {
			t.Errorf("stager %s: --dry-run is %s, and that it changes nothing is %v; want a flag, or a reason in its help (\"Has no --dry-run: …\")", cmd.Name, got, quiet)
		}
	}
	if len(left) > 0 {
		t.Errorf("the list has commands that do not exist: %v", left)
	}
}

// commandLine returns the commands of the binary as it describes them.
func commandLine(t *testing.T) *reference.CLI {
	t.Helper()
	out, err := exec.Command(world.stager, "reference").Output()
	if err != nil {
		t.Fatal(err)
	}
	line, err := reference.ParseCLI(out)
	if err != nil {
		t.Fatal(err)
	}
	return line
}

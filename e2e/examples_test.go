package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// typed are the commands that the comment on top of an example tells to type.
var typed = regexp.MustCompile(`(?m)^(?:#|//)     stager (.*?)(?: \| kubectl apply -f -)?$`)

// typedTraining is the command that the comment of an example of a trainer tells to type.
var typedTraining = regexp.MustCompile(`(?m)^    (?:python3|torchrun) .*$`)

// Each file of examples/ tells a problem and the command to type, which works as it is
// typed; the table in the README has it. What manifests are after that is stager/jobspec's
// and e2e/cluster's to test.
func TestExamples(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../examples/*.*", "../examples/kinds/*", "../examples/train/*"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		files = append(files, found...)
	}
	table, err := os.ReadFile("../examples/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := strings.TrimPrefix(f, "../examples/")
		if name == "README.md" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(string(table), "("+name+")") {
				t.Error("the table in examples/README.md does not have it")
			}
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(name, "train/") { // e2e/pytorch runs it
				if line := typedTraining.FindSubmatch(text); line == nil || !strings.Contains(string(line[0]), " "+filepath.Base(f)+" ") {
					t.Errorf("got %q in the comment on its top, want a command that runs it", line)
				}
				return
			}
			all := typed.FindAllSubmatch(text, -1)
			if len(all) == 0 || !strings.Contains(string(all[0][1]), "examples/"+name) {
				t.Fatalf("the comment on its top tells no command with examples/%s", name)
			}
			for _, said := range all {
				if !strings.Contains(string(said[1]), " job.yaml") { // a user's own file
					typeExample(t, name, string(text), strings.Fields(string(said[1])))
				}
			}
		})
	}
}

// typeExample types one command of an example's comment.
func typeExample(t *testing.T, name, text string, args []string) {
	t.Helper()
	switch {
	case args[0] == "run": // what it runs is trainer.txtar's; here the plan is some manifest's
		pod := `{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: [{name: main, image: trainer}]}}`
		typeStager(t, pod, "inject", "-q", "-f", "-", "--plan", "examples/"+name)
	case args[0] == "pai":
		if made := typeStager(t, "", args...); !strings.Contains(made, "kind: Job") || !strings.Contains(made, "stager.dev/status") {
			t.Errorf("it makes no Job with stager in it, but\n%s", made)
		}
	case args[0] == "explain": // what it prints is explain_test.go's
		cmd := exec.CommandContext(t.Context(), world.stager, args...)
		cmd.Dir = ".."
		out, _ := cmd.Output() // the exit code is the verdict's
		if !strings.Contains(string(out), "\nVerdict: ") {
			t.Errorf("stager %s gives no verdict, but\n%s", strings.Join(args, " "), out)
		}
	case args[0] == "inject":
		once := typeStager(t, "", args...)
		if !strings.Contains(once, "stager.dev/status") {
			t.Errorf("nothing was injected into\n%s", once)
		}
		flags := args[3:]
		if twice := typeStager(t, once, append([]string{"inject", "-f", "-"}, flags...)...); twice != once {
			t.Errorf("injected twice it is\n%s\nwant\n%s", twice, once)
		}
		if back := typeStager(t, once, "uninject", "-f", "-"); back != text {
			t.Errorf("uninjected it is\n%s\nwant\n%s", back, text)
		}
	default:
		t.Errorf("nobody tests stager %s", args[0])
	}
}

// typeStager runs the binary where users type: at the top.
func typeStager(t *testing.T, text string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), world.stager, args...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stderr = "..", strings.NewReader(text), &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("stager %s: %v\n%s", strings.Join(args, " "), err, said.String())
	}
	return string(out)
}

package reference

import (
	"strings"
	"testing"
)

// Every command with -o prints a described type, and none prints one without a name.
func TestOutputsAreThoseOfTheCommands(t *testing.T) {
	p, err := readProgram("../..")
	if err != nil {
		t.Fatal(err)
	}
	all, err := p.outputs()
	if err != nil {
		t.Fatal(err)
	}
	printing := make(map[string]bool)
	for _, o := range all {
		printing[o.command] = true
	}
	line, err := ReadCLI("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range line.Commands {
		if strings.HasPrefix(cmd.Name, "kubectl ") {
			continue // it prints what the stager in the pod prints
		}
		for _, f := range cmd.Flags {
			if formats := strings.Join(f.Enum, " "); f.Name == "output" && formats == "table json yaml" && !printing[cmd.Name] {
				t.Errorf("stager %s has --output and prints nothing by the methods of shape", cmd.Name)
			}
		}
		delete(printing, cmd.Name)
	}
	for name := range printing {
		t.Errorf("the page names stager %s, which does not exist", name)
	}
}

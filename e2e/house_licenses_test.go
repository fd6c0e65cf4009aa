package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A release passes on the licenses of the modules that are linked into it. A package that derives
// from foreign code has that code's license beside it, which must therefore be one of them.
func TestLicensesOfPackagesAreInTheRelease(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Dir}}{{end}}", "./cmd/stager")
	list.Dir = ".."
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	var passedOn [][]byte
	seen := make(map[string]bool)
	for dir := range strings.Lines(string(out)) {
		if dir = strings.TrimSpace(dir); dir == "" || seen[dir] {
			continue
		}
		seen[dir] = true
		for _, name := range []string{"LICENSE", "LICENSE.txt", "LICENSE.md"} {
			if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				passedOn = append(passedOn, text)
			}
		}
	}
	found := 0
	for _, p := range packages(t) {
		text, err := os.ReadFile(filepath.Join(p.Dir, "LICENSE"))
		if err != nil {
			continue
		}
		found++
		passed := false
		for _, l := range passedOn {
			passed = passed || bytes.Equal(l, text)
		}
		if !passed {
			t.Errorf("%s has a LICENSE that no module of the binary has; let e2e/release pass it on", p.name())
		}
	}
	if found == 0 {
		t.Error("no package has a LICENSE, but backends/hdfs/internal/rpc derives from foreign code")
	}
}

package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/diff"
)

// checkedBlock is a block of the manual with one command and all that it prints.
var checkedBlock = regexp.MustCompile("(?s)<!-- checked -->\n```console\n\\$ stager (explain [^\n]*)\n(.*?)```\n")

// What docs/explain.md shows is what its commands print, typed at the top.
// STAGER_MANUAL=update writes what comes; read the difference before you commit it.
func TestExplainManualShowsWhatIsPrinted(t *testing.T) {
	const file, blocks = "../docs/explain.md", 4
	update := os.Getenv("STAGER_MANUAL") == "update"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	printed := checkedBlock.FindAllSubmatch(text, -1)
	if len(printed) != blocks || bytes.Count(text, []byte("```console")) != blocks {
		t.Fatalf("%s has %d blocks that are checked, want %d, and no other", file, len(printed), blocks)
	}
	for _, block := range printed {
		command := string(block[1])
		cmd := exec.CommandContext(t.Context(), world.stager, strings.Fields(command)...)
		cmd.Dir = ".."
		out, _ := cmd.Output() // the exit code is the verdict's
		if update {
			text = bytes.Replace(text, block[0], []byte("<!-- checked -->\n```console\n$ stager "+command+"\n"+string(out)+"```\n"), 1)
			continue
		}
		if !bytes.Equal(block[2], out) {
			t.Errorf("stager %s:\n%s", command, diff.Diff("shown", block[2], "printed", out))
		}
	}
	if update {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

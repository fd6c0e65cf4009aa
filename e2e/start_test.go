package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/live"
)

var startBlock = regexp.MustCompile("(?ms)^```(sh|text)\n(.*?)^```$")

// TestStartPagesAreFollowed runs the commands of each page of docs/start in an empty directory,
// with nothing added. The text after a block is all that it prints.
func TestStartPagesAreFollowed(t *testing.T) {
	_, err := exec.LookPath("python3")
	live.Require(t, "python3", err)
	client, err := filepath.Abs("../python")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../docs/start/*.md")
	if err != nil || len(pages) != 3 {
		t.Fatalf("got the pages %q, %v, want three", pages, err)
	}
	for _, page := range pages {
		if filepath.Base(page) == "kubernetes.md" {
			continue // the cluster suite follows it
		}
		t.Run(filepath.Base(page), func(t *testing.T) {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			work, err := os.MkdirTemp("", "start-") // a short path, for the socket
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(work) })
			var command, printed string
			for _, block := range startBlock.FindAllStringSubmatch(string(text), -1) {
				if block[1] == "text" {
					if printed != block[2] {
						t.Errorf("%s\ngot\n%s\nwant\n%s", command, printed, block[2])
					}
					continue
				}
				command = block[2]
				cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", command)
				cmd.Dir = work
				cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(world.stager)+":"+os.Getenv("PATH"), // as the page installs them
					"PYTHONPATH="+client, "STAGER_SOCKET="+filepath.Join(work, "s")) // beside the daemons of other tests
				var stderr strings.Builder
				cmd.Stderr = &stderr
				out, err := cmd.Output()
				if err != nil {
					log, _ := os.ReadFile(filepath.Join(work, "log.txt"))
					t.Fatalf("%s\n%v\n%s%s%s", command, err, out, stderr.String(), log)
				}
				printed = string(out)
			}
			if printed == "" {
				t.Errorf("the last block of %s prints nothing", page)
			}
		})
	}
}

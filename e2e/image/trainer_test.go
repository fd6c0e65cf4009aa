package image_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/image"
)

// The trainer runs with the commands of its image alone, though they are this machine's.
func TestTrainerFindsItsCommands(t *testing.T) {
	script, err := os.ReadFile("../../images/trainer/trainer")
	if err != nil {
		t.Fatal(err)
	}
	bin, in, out := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "out")
	for _, f := range image.Trainer("localhost/trainer:dev", "amd64", nil, nil, script).Files {
		name := filepath.Base(f.Path)
		switch {
		case name == "trainer":
			err = os.WriteFile(filepath.Join(bin, name), f.Body, os.FileMode(f.Mode))
		case name == "sh" || f.Link == "sh":
			here, lerr := exec.LookPath(name)
			if lerr != nil {
				live.Require(t, name, errors.New("the trainer's commands are not on this machine"))
			}
			err = os.Symlink(here, filepath.Join(bin, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var want strings.Builder
	for i := range 5 {
		name := fmt.Sprintf("%d.tar", i)
		if err := os.WriteFile(filepath.Join(in, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&want, "%x  %s\n", sha256.Sum256([]byte(name)), name)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "trainer"), "in="+in, "out="+out, "every=2", "weights=1000")
	cmd.Env = []string{"PATH=" + bin, "TMPDIR=" + t.TempDir()}
	if said, err := cmd.CombinedOutput(); err != nil || !strings.HasSuffix(string(said), "done at step 5\n") {
		t.Fatalf("the trainer ended with %v and said\n%s", err, said)
	}
	if got, err := os.ReadFile(filepath.Join(out, "step-000005", "shards")); err != nil || string(got) != want.String() {
		t.Errorf("the checkpoint counts %q, %v, want %q", got, err, want.String())
	}
	if info, err := os.Stat(filepath.Join(out, "step-000005", "weights")); err != nil || info.Size() != 1000 {
		t.Errorf("weights: %v, %v, want 1000 bytes", info, err)
	}
}

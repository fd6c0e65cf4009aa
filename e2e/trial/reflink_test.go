package trial

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/live"
)

// A trainer that overwrites one file in place lost five of six checkpoints that "stager
// commit" had taken: stager held them by hard links, which changed with the file. Where
// files can share blocks, as on xfs, they are held by copies.
func TestCommitHoldsWhatIsOverwrittenOnXFS(t *testing.T) {
	store := t.TempDir()
	j := newJob(t, vault{binary: build(t), url: "file://" + store + "/ckpt/"}, "512Ki", "")
	out := filepath.Join(j.work, "out")
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	live.Mount(t, "xfs", out, 400<<20)
	j.start(t)
	const steps = 3
	file := filepath.Join(out, "last.pt")
	for step := range steps {
		overwrite(t, file, content(step, "", 256<<10)["model.pt"])
		commit := exec.Command(j.binary, "commit", "--socket", filepath.Join(j.work, "s"), "ckpt", file, "--step", fmt.Sprint(step+1))
		if said, err := commit.CombinedOutput(); err != nil {
			t.Fatalf("commit of step %d: %v\n%s", step+1, err, said)
		}
	}
	overwrite(t, file, content(steps, "", 256<<10)["model.pt"])
	j.end(t)
	got := j.restore(t, func(step int) map[string][]byte {
		return map[string][]byte{"last.pt": content(step-1, "", 256<<10)["model.pt"]}
	})
	if got != steps {
		t.Errorf("got step %d, want %d", got, steps)
	}
}

// overwrite writes a file in place.
func overwrite(t *testing.T, name string, p []byte) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(p)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

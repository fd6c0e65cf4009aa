package trial

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/conformance/live"
)

// A trainer that overwrites one file in place lost five of six checkpoints that "stager
// commit" had taken: stager held them by hard links, which changed with the file. Where
// files can share blocks, as on xfs, they are held by copies.
func TestCommitHoldsWhatIsOverwrittenOnXFS(t *testing.T) {
	store := t.TempDir()
	j := newJob(t, vault{binary: build(t), url: "file://" + store + "/ckpt/"}, "512Ki", "")
	out := filepath.Join(j.work, "out")
	mountXFS(t, out)
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

// mountXFS mounts an xfs of its own, or skips the test where this is not possible.
func mountXFS(t *testing.T, dir string) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 400<<20), os.MkdirAll(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.xfs", "-q", "-m", "reflink=1", image}, {"mount", "-o", "loop", image, dir}} {
		if said, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			live.Require(t, "xfs", fmt.Errorf("%v: %w: %s", args, err, said))
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

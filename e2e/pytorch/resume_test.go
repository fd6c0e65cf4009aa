package pytorch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// node is a machine with directories of its own: a window, an output and a stager.
type node struct {
	l           *lab
	dir, socket string
	saves       string // where its checkpoints go
	cmd         *exec.Cmd
}

// node has a window for all shards.
func (l *lab) node(saves string) *node {
	l.t.Helper()
	return l.nodeOf(saves, count)
}

// nodeOf has a window for a number of shards.
func (l *lab) nodeOf(saves string, shards int) *node {
	l.t.Helper()
	n := l.planned(saves, shards)
	n.start()
	return n
}

// planned has no stager yet.
func (l *lab) planned(saves string, shards int) *node {
	l.t.Helper()
	dir, err := os.MkdirTemp("", "node-") // a socket's path must be short
	if err != nil {
		l.t.Fatal(err)
	}
	n := &node{l: l, dir: dir, saves: saves, socket: filepath.Join(dir, "s.sock")}
	plan := fmt.Sprintf(`apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata: {name: digits}
spec:
  inputs:
  - {name: train, source: "%s", path: %s/data, mode: window, window: {size: %d}, order: {by: shuffle, seed: 17, epochs: %d}%s}
  outputs:
  - {name: ckpt, path: %s/out, destination: "%s", keep: {last: 2}}
`, l.url, dir, l.size*int64(shards), l.epochs, l.more, dir, saves)
	if err := os.WriteFile(filepath.Join(dir, "plan.yaml"), []byte(plan), 0o644); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(n.destroy)
	return n
}

// start starts its stager.
func (n *node) start() {
	n.l.t.Helper()
	n.cmd = exec.Command(n.l.stager, "run", "-f", filepath.Join(n.dir, "plan.yaml"), "--socket", n.socket)
	n.cmd.Env = append(os.Environ(), n.l.store...)
	n.cmd.Stderr = n.l.t.Output()
	if err := n.cmd.Start(); err != nil {
		n.l.t.Fatal(err)
	}
}

// destroy leaves nothing of the machine.
func (n *node) destroy() {
	if n.cmd != nil && n.cmd.ProcessState == nil {
		_ = n.cmd.Process.Signal(syscall.SIGKILL)
		_ = n.cmd.Wait() // killed
	}
	_ = os.RemoveAll(n.dir)
}

type resumed struct {
	Losses   []float64 `json:"losses"`
	Samples  []int     `json:"samples"`
	Weights  string    `json:"weights"`
	Restored *int      `json:"restored"`
}

func (n *node) train(args ...string) (r resumed, err error) {
	n.l.t.Helper()
	cmd := n.l.command(n.socket)
	cmd.Args = append([]string{n.l.trainer.Python, "-B", "testdata/resume.py", strconv.Itoa(epochs), n.dir + "/out", n.dir + "/newest"}, args...)
	cmd.Stderr = n.l.t.Output()
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	return r, err
}

// stager is a command of stager's.
func (n *node) stager(args ...string) *exec.Cmd {
	cmd := exec.Command(n.l.stager, args...)
	cmd.Env = append(os.Environ(), n.l.store...)
	return cmd
}

func (n *node) committed(step int) bool {
	out, err := n.stager("checkpoints", "-o", "json", "--step", strconv.Itoa(step), n.saves).Output()
	return err == nil && bytes.Contains(out, []byte(`"committed":true`))
}

// A node dies in the middle of the second epoch, with all that was on it. A fresh one
// restores the newest checkpoint, and goes on with the very next sample: every loss of
// the whole run, every sample in its place and every weight are those of a run that
// nobody disturbed.
func TestTrainerGoesOnOnAFreshNode(t *testing.T) {
	l := newLab(t)
	calm := l.node("s3://digits/calm/")
	want, err := calm.train()
	if err != nil {
		t.Fatal(err)
	}
	calm.destroy()

	first := l.node("s3://digits/ckpt/")
	const killed = count + 18
	if _, err := first.train(strconv.Itoa(killed)); err == nil {
		t.Fatal("the trainer lives, and was to be killed")
	}
	const newest = killed / 7 * 7
	for until := time.Now().Add(time.Minute); !first.committed(newest); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("step %d is never committed", newest)
		}
	}
	first.destroy()

	second := l.node(first.saves)
	l.run(second.stager("restore", second.saves, second.dir+"/newest"))
	got, err := second.train()
	if err != nil {
		t.Fatal(err)
	}
	if got.Restored == nil || *got.Restored != newest {
		t.Errorf("restored was %v, want step %d", got.Restored, newest)
	}
	if !slices.Equal(got.Samples, want.Samples) {
		t.Errorf("%d samples were seen, want %d in the same order", len(got.Samples), len(want.Samples))
	}
	if !slices.Equal(got.Losses, want.Losses) || got.Weights != want.Weights {
		t.Errorf("losses %v and weights %s, want %v and %s", got.Losses, got.Weights, want.Losses, want.Weights)
	}
	if len(got.Samples) != epochs*samples {
		t.Errorf("%d samples were seen, want %d", len(got.Samples), epochs*samples)
	}
}

package pytorch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

const (
	samples = 1797
	count   = 36 // shards
	epochs  = 2
)

// outcome is what train.py prints.
type outcome struct {
	Losses  []float64 `json:"losses"` // of each batch
	Seen    [][]int   `json:"seen"`   // samples, by epoch
	Weights string    `json:"weights"`
}

// lab is where a test works.
type lab struct {
	t       *testing.T
	trainer servers.Trainer
	stager  string
	store   []string // environment of the store's clients
	url     string   // of the shards
	shards  string   // the same, in a local directory
	size    int64    // of the largest one
	epochs  int      // of plans
	more    string   // fields of the input in plans of nodes, each after a comma
}

func newLab(t *testing.T) *lab {
	trainer, err := servers.PyTorch()
	live.Require(t, "pytorch", err)
	if err := share(); err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, trainer: trainer, stager: shared.stager, shards: t.TempDir(), epochs: epochs}
	if err := os.CopyFS(l.shards, os.DirFS(shared.shards)); err != nil {
		t.Fatal(err)
	}
	s3, err := servers.StartS3(t.Context(), servers.S3Options{Dir: t.TempDir(), Buckets: []string{"digits"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s3.Close() })
	l.store, l.url = s3.Env(), "s3://digits/train/"
	push := exec.Command(l.stager, "push", "--quiet", l.shards, l.url)
	push.Env = append(os.Environ(), l.store...)
	l.run(push)
	l.size = l.largest(l.shards)
	return l
}

// client returns the directory of the Python package.
func (l *lab) client() string {
	l.t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "python"))
	if err != nil {
		l.t.Fatal(err)
	}
	return dir
}

// largest returns the size of the largest file in a directory.
func (l *lab) largest(dir string) (size int64) {
	l.t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			l.t.Fatal(err)
		}
		size = max(size, info.Size())
	}
	return size
}

// run runs a command to its end and returns what it prints.
func (l *lab) run(cmd *exec.Cmd) []byte {
	l.t.Helper()
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		l.t.Fatalf("%v: %v\n%s", cmd.Args, err, said.Bytes())
	}
	return out.Bytes()
}

// window serves the shards, a third of them at a time, and returns its socket.
func (l *lab) window() (socket string) {
	l.t.Helper()
	dir, err := os.MkdirTemp("", "pytorch-") // a socket's path must be short
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s.sock")
	plan := fmt.Sprintf(`apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata: {name: digits}
spec:
  inputs:
  - {name: train, source: "%s", path: %s/data, mode: window, window: {size: %d}, order: {by: shuffle, seed: 17, epochs: %d}}
`, l.url, dir, l.size*count/3, l.epochs)
	if err := os.WriteFile(filepath.Join(dir, "plan.yaml"), []byte(plan), 0o644); err != nil {
		l.t.Fatal(err)
	}
	cmd := exec.Command(l.stager, "run", "-f", filepath.Join(dir, "plan.yaml"), "--socket", socket)
	cmd.Env = append(os.Environ(), l.store...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	return socket
}

// train runs train.py to its end.
func (l *lab) train(socket string, args ...string) (o outcome) {
	l.t.Helper()
	out := l.run(l.command(socket, args...))
	if err := json.Unmarshal(out, &o); err != nil {
		l.t.Fatalf("%v\n%s", err, out)
	}
	return o
}

// command is train.py. It does not live for ever, since to wait for ever is what might be
// wrong with it.
func (l *lab) command(socket string, args ...string) *exec.Cmd {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 3*time.Minute)
	l.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, l.trainer.Python, append([]string{"-B", "testdata/train.py", strconv.Itoa(epochs)}, args...)...)
	// Threads of OpenMP spin while they wait for each other, which takes the cores from others.
	cmd.Env = append(os.Environ(), "PYTHONPATH="+l.client()+string(os.PathListSeparator)+l.trainer.Path, "STAGER_SOCKET="+socket, "OMP_NUM_THREADS=1")
	return cmd
}

// each fails the test unless every epoch has each sample once.
func (o outcome) each(t *testing.T) {
	t.Helper()
	if len(o.Seen) != epochs {
		t.Errorf("%d epochs were trained, want %d", len(o.Seen), epochs)
	}
	for epoch, seen := range o.Seen {
		slices.Sort(seen)
		if got := len(slices.Compact(slices.Clone(seen))); len(seen) != samples || got != samples {
			t.Errorf("epoch %d has %d samples, of them %d different ones, want each of %d once", epoch, len(seen), got, samples)
		}
	}
}

func mean(of []float64) (m float64) {
	for _, x := range of {
		m += x / float64(len(of))
	}
	return m
}

// A network that learns through a window learns exactly what it learns from a local
// directory in the same order: every loss and every weight is equal, to the bit.
func TestLossIsThatOfALocalDir(t *testing.T) {
	l := newLab(t)
	record := t.TempDir()
	through := l.train(l.window(), record)
	local := l.train("", record, "--from", l.shards)
	if !slices.Equal(through.Losses, local.Losses) || through.Weights != local.Weights {
		t.Errorf("through the window losses are %v, weights %s; from the directory %v, %s", through.Losses, through.Weights, local.Losses, local.Weights)
	}
	through.each(t)
	if first, last := mean(through.Losses[:10]), mean(through.Losses[len(through.Losses)-10:]); last > first/2 {
		t.Errorf("the mean loss of ten batches went from %.3f to %.3f: nothing was learnt", first, last)
	}
}

// A worker is killed in the middle of an epoch, as are those that are given its shard
// before the trainer has ended of it. Started again the trainer takes its checkpoint, which
// tells where the data stood: what the broken epoch had acknowledged comes again, and the
// network has seen what that of an unbroken run sees.
func TestTrainerGoesOnAtItsCheckpoint(t *testing.T) {
	l := newLab(t)
	socket, record := l.window(), t.TempDir()
	checkpoint := filepath.Join(t.TempDir(), "model.pt")
	broken := l.command(socket, record, "--checkpoint", checkpoint, "--kill", "1")
	// Most often it is "DataLoader worker (pid 1) is killed"; a worker that was killed while it
	// handed on a batch leaves a ConnectionResetError or an EOFError.
	if out, err := broken.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("torch/utils/data/dataloader.py")) {
		t.Fatalf("with a worker killed the trainer ended with %v, want an error of its loader that says so\n%s", err, out)
	}
	var read []byte
	for worker := range 4 {
		notes, _ := os.ReadFile(filepath.Join(record, fmt.Sprintf("1-%d", worker))) // none: it came late
		read = append(read, notes...)
	}
	if got := bytes.Count(read, []byte("\n")); got < 10 || got >= count {
		t.Fatalf("%d shards were read of the broken epoch, want some of %d", got, count)
	}
	l.train(socket, record, "--checkpoint", checkpoint).each(t)
}

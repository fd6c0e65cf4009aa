package trial

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// python is a command that finds the client in the tree, as PYTHONPATH would after
// an installation.
func python(t *testing.T, script string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := servers.Python()
	live.Require(t, "python", err)
	client, err := filepath.Abs(filepath.Join("..", "..", "python"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, append([]string{"-B", filepath.Join("testdata", script)}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+client)
	return cmd
}

// The Python client keeps what the API promises: readers are killed again and again,
// stager three times, and every shard is read whole and acknowledged once.
func TestPythonClientLosesNothing(t *testing.T) {
	binary := build(t)
	python(t, "reader.py") // or it is left out before anything is started
	s3 := anS3(t)
	all := s3.fill(t, binary, "python", 150, 64<<10)
	next := time.Now().Add(time.Second)
	report, _ := s3.window(t, binary, "python", all, Config{
		Readers: 4, Pace: 20 * time.Millisecond,
		ReaderCmd: func(r Reader) *exec.Cmd {
			return python(t, "reader.py", r.Socket, r.Input, r.ID, strconv.Itoa(r.Epochs), r.Record, fmt.Sprint(r.Pace.Seconds()))
		},
		KillReaders: func(int, int) bool {
			if time.Now().Before(next) {
				return false
			}
			next = time.Now().Add(400 * time.Millisecond)
			return true
		},
		KillStager: []float64{0.25, 0.5, 0.75},
	})
	if report.KilledStager != 3 || report.KilledReaders == 0 {
		t.Errorf("%d readers and %d times stager were killed, want some and 3", report.KilledReaders, report.KilledStager)
	}
}

// Loaders fork or spawn workers; some come late, give up early, or are copies.
func TestWorkersOfAPythonLoader(t *testing.T) {
	binary := build(t)
	for _, how := range []string{"fork", "spawn"} {
		t.Run(how, func(t *testing.T) {
			const count = 60
			work := t.TempDir()
			shards := filepath.Join(work, "shards")
			if err := os.Mkdir(shards, 0o755); err != nil {
				t.Fatal(err)
			}
			if _, err := PackNoise(shards, count, 16<<10); err != nil {
				t.Fatal(err)
			}
			run, err := os.MkdirTemp("", "trial-") // a socket's path must be short
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(run) })
			socket, plan := filepath.Join(run, "s.sock"), filepath.Join(work, "plan.yaml")
			text := fmt.Sprintf(`apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata: {name: python}
spec:
  inputs:
  - {name: train, source: "file://%s/", path: %s/data, mode: window, window: {size: 512Ki}, order: {by: shuffle, seed: 5, epochs: 3}}
`, shards, work)
			if err := os.WriteFile(plan, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(binary, "run", "-f", plan, "--socket", socket)
			cmd.Stderr = os.Stderr
			stager, err := start(cmd)
			if err != nil {
				t.Fatal(err)
			}
			defer stager.kill()
			out, err := python(t, "workers.py", socket, strconv.Itoa(count), how).CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Error(err)
			}
		})
	}
}

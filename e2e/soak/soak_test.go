package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/room"
	"github.com/stager-dev/stager/e2e/servers"
	"github.com/stager-dev/stager/e2e/trial"
)

// asReader makes the test binary a reader with these settings.
const asReader = "STAGER_SOAK_READER"

func TestMain(m *testing.M) {
	settings := os.Getenv(asReader)
	if settings == "" {
		os.Exit(room.Run(m))
	}
	var r trial.Reader
	err := json.Unmarshal([]byte(settings), &r)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err = r.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "reader:", err)
		os.Exit(1)
	}
}

func readerCmd(r trial.Reader) *exec.Cmd {
	settings, err := json.Marshal(r)
	if err != nil {
		panic(err) // it is strings and numbers
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asReader+"="+string(settings))
	return cmd
}

// A short run under all faults. "make soak" runs for longer and proves that nothing grows.
func TestSoakKeepsPromises(t *testing.T) {
	if os.Geteuid() != 0 {
		live.Require(t, "mount", errors.New("volumes are mounted, which only root may"))
	}
	work, err := os.MkdirTemp("", "soak-") // a short path, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(work) })
	store, err := servers.StartS3(t.Context(), servers.S3Options{Dir: filepath.Join(work, "store"), Buckets: []string{Bucket}})
	live.Require(t, "s3", err)
	t.Cleanup(func() { _ = store.Close() })
	binary := filepath.Join(work, "stager")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/stager")
	build.Dir, build.Stderr = filepath.Join("..", ".."), os.Stderr
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := build.Run(); err != nil {
		t.Fatal(err)
	}
	result, err := Run(t.Context(), Config{Stager: binary, Store: store, Work: work, ReaderCmd: readerCmd, For: 75 * time.Second, Seed: uint64(time.Now().UnixNano()), Say: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	result.Print(t.Output())
	if !result.Passed {
		t.Error("a promise was broken, or a series grows")
	}
	if err := result.Write(t.TempDir()); err != nil {
		t.Error(err)
	}
	missing := 0
	for _, f := range faults {
		if result.Counts[f.name] == 0 {
			missing++
		}
	}
	if missing > len(faults)/2 || result.Counts["restores compared"] == 0 || result.Counts["visible files read"] == 0 {
		t.Errorf("%d of %d faults never came, in %v", missing, len(faults), result.Counts)
	}
}

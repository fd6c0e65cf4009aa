package trial

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stager-dev/stager/e2e/servers"
)

// asReader makes the test binary one of a trial's readers: its value is the
// reader's settings.
const asReader = "STAGER_TRIAL_READER"

func TestMain(m *testing.M) {
	settings := os.Getenv(asReader)
	if settings == "" {
		os.Exit(m.Run())
	}
	var r Reader
	var pace int64
	if _, err := fmt.Sscanf(settings, "%q %q %q %d %q %d", &r.Socket, &r.Input, &r.ID, &r.Epochs, &r.Record, &pace); err != nil {
		fmt.Fprintln(os.Stderr, "reader:", err)
		os.Exit(2)
	}
	r.Pace = time.Duration(pace)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := r.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "reader:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func readerCmd(r Reader) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asReader+"="+fmt.Sprintf("%q %q %q %d %q %d", r.Socket, r.Input, r.ID, r.Epochs, r.Record, int64(r.Pace)))
	return cmd
}

// build makes the binary.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "stager")
	cmd := exec.Command("go", "build", "-o", binary, "./cmd/stager")
	cmd.Dir, cmd.Stderr = filepath.Join("..", ".."), os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return binary
}

// Eight readers, a random one killed again and again, stager killed three times:
// every shard is acknowledged once, none is lost, the bound is never passed.
// STAGER_TRIAL=full takes 1,000 shards and kills a reader every second.
func TestNothingIsLost(t *testing.T) {
	shards, size, pace, every := 250, 256<<10, 20*time.Millisecond, 250*time.Millisecond
	if os.Getenv("STAGER_TRIAL") == "full" {
		shards, size, pace, every = 1000, 4<<20, 250*time.Millisecond, time.Second
	}
	binary := build(t)
	s3, err := servers.StartS3(t.Context(), servers.S3Options{Buckets: []string{"trial"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s3.Close() })
	packed := t.TempDir()
	digests, err := PackNoise(packed, shards, size)
	if err != nil {
		t.Fatal(err)
	}
	push := exec.Command(binary, "push", "--quiet", packed, "s3://trial/noise/")
	push.Env = append(os.Environ(), s3.Env()...)
	if said, err := push.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if err := os.RemoveAll(packed); err != nil {
		t.Fatal(err)
	}
	// A short path: a socket's is limited to 107 bytes.
	work, err := os.MkdirTemp("", "trial-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(work) })

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	next := time.Now().Add(every)
	report, err := Run(ctx, Config{
		Stager: binary, Env: s3.Env(), Source: "s3://trial/noise/", Shards: digests, Work: work,
		Readers: 8, ReaderCmd: readerCmd, Pace: pace, Epochs: 1, Window: int64(shards) * int64(size) / 8,
		KillReaders: func(int, int) bool {
			if time.Now().Before(next) {
				return false
			}
			next = time.Now().Add(every)
			return true
		},
		KillStager: []float64{0.2, 0.5, 0.8},
		Say:        func(string, ...any) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err := report.Print(&table); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", table.String())
	for _, broken := range report.Broken() {
		t.Error(broken)
	}
	if report.KilledStager != 3 || report.KilledReaders < 3 {
		t.Errorf("stager was killed %d times and readers %d times: the trial was too short to prove anything", report.KilledStager, report.KilledReaders)
	}
}

package trial

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stager-dev/stager/e2e/room"
)

// runTests runs all tests. In their short forms they wait more than they work, so six run at once.
func runTests(m *testing.M) (code int) {
	flag.Parse()
	if !full {
		if err := flag.Set("test.parallel", strconv.Itoa(max(6, runtime.GOMAXPROCS(0)))); err != nil {
			panic(err)
		}
	}
	code = room.Run(m)
	if err := os.RemoveAll(builtIn); err != nil { // of "" it removes nothing
		fmt.Fprintln(os.Stderr, "trial:", err)
	}
	return code
}

// asReader makes the test binary one of a trial's readers: its value is the
// reader's settings.
const asReader = "STAGER_TRIAL_READER"

// full is whether the long forms of the trials are wanted.
var full = os.Getenv("STAGER_TRIAL") == "full"

func TestMain(m *testing.M) {
	if settings := os.Getenv(asNeighbour); settings != "" {
		runNeighbour(settings)
		os.Exit(0)
	}
	if os.Getenv(asWatched) != "" {
		fmt.Fprintln(os.Stderr, "watched:", runWatched())
		os.Exit(2)
	}
	settings := os.Getenv(asReader)
	if settings == "" {
		os.Exit(runTests(m))
	}
	var r Reader
	if err := json.Unmarshal([]byte(settings), &r); err != nil {
		fmt.Fprintln(os.Stderr, "reader:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := r.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "reader:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func readerCmd(r Reader) *exec.Cmd {
	settings, err := json.Marshal(r)
	if err != nil {
		panic(err) // it is strings and numbers
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asReader+"="+string(settings))
	return cmd
}

// build returns the binary, which is built once, unless STAGER_TRIAL_BINARY names another to be tried.
func build(t *testing.T) string {
	t.Helper()
	if other := os.Getenv("STAGER_TRIAL_BINARY"); other != "" {
		return other
	}
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// builtIn is the directory of the binary, once it is built. TestMain removes it.
var builtIn string

var built = sync.OnceValues(func() (binary string, err error) {
	if builtIn, err = os.MkdirTemp("", "stager-trial-"); err != nil {
		return "", err
	}
	binary = filepath.Join(builtIn, "stager")
	cmd := exec.Command("go", "build", "-o", binary, "./cmd/stager")
	cmd.Dir, cmd.Stderr = filepath.Join("..", ".."), os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	return binary, cmd.Run()
})

// shards are what a window is tried with.
type shards struct {
	count, size int
	digests     map[string]string
}

// fill packs shards and pushes them to a directory of the store.
func (s store) fill(t *testing.T, binary, dir string, count, size int) shards {
	t.Helper()
	packed := t.TempDir()
	digests, err := PackNoise(packed, count, size)
	if err != nil {
		t.Fatal(err)
	}
	s.push(t, binary, packed, dir)
	return shards{count, size, digests}
}

// anS3 is a server of the test's own.
func anS3(t *testing.T) store {
	t.Helper()
	s, err := startS3(t)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// evenly are so many parts of a whole.
func evenly(n int) (parts []float64) {
	for i := range n {
		parts = append(parts, float64(i)/float64(n))
	}
	return parts
}

// push brings a directory to the store.
func (s store) push(t *testing.T, binary, packed, dir string) {
	t.Helper()
	if m, err := measure(s.command(t, binary, "push", "--quiet", packed, s.url(dir)), 0, nil); err != nil || m.exit != 0 {
		t.Fatalf("push: %v, exit %d\n%s", err, m.exit, m.log)
	}
}

// window carries a trial out, unless told over a window of an eighth of the shards, and fails the
// test when a promise does not hold. It returns what stager said.
func (s store) window(t *testing.T, binary, dir string, all shards, cfg Config) (report *Report, log string) {
	t.Helper()
	// A short path: a socket's is limited to 107 bytes.
	work, err := os.MkdirTemp("", "trial-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(work) })
	cfg.Stager, cfg.Env, cfg.Source, cfg.Shards, cfg.Work = binary, s.Env(), s.url(dir), all.digests, work
	cfg.Epochs, cfg.Say = max(cfg.Epochs, 1), func(string, ...any) {}
	cfg.Window = cmp.Or(cfg.Window, int64(all.count)*int64(all.size)/8+512<<10)
	if cfg.ReaderCmd == nil {
		cfg.ReaderCmd = readerCmd
	}
	judge := onVolume(t, &cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	report, err = Run(ctx, cfg)
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
	said, err := os.ReadFile(filepath.Join(work, "stager.log"))
	if err != nil {
		t.Fatal(err)
	}
	judge(string(said))
	return report, string(said)
}

// Eight readers, a random one killed again and again, stager killed three times:
// every shard is acknowledged once, none is lost, the bound is never passed, also where
// half of the shards stay from one epoch to the next, and where each goes to two groups.
// STAGER_TRIAL=full kills readers 1,000 times and stager 20 times. That takes many
// deliveries: a shard of which three readers die ends the input.
func TestWindowLosesNothing(t *testing.T) {
	count, size, epochs, pace := 250, 256<<10, 1, 20*time.Millisecond
	kills, every := 1<<30, 250*time.Millisecond
	stagerKills := []float64{0.2, 0.5, 0.8}
	if full {
		count, size, epochs, pace = 1000, 8<<10, 150, 2*time.Millisecond
		kills, every = 1000, 60*time.Millisecond
		stagerKills = evenly(20)
	}
	binary := build(t)
	s3 := anS3(t)
	all := s3.fill(t, binary, "noise", count, size)
	for _, tt := range []struct {
		name, reuse string
		groups      int
		window      int64
		epochs      int
	}{
		{"fetched in each epoch", "none", 0, 0, epochs},
		{"kept over epochs", "pin", 0, int64(count) * int64(size) / 2, max(epochs, 3)},
		{"told to two groups", "none", 2, 0, max(epochs/2, 1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kills, next := kills, time.Now().Add(every)
			report, _ := s3.window(t, binary, "noise", all, Config{
				Readers: 8, Pace: pace, Groups: tt.groups, Epochs: tt.epochs, Window: tt.window, Reuse: tt.reuse,
				KillReaders: func(int, int) bool {
					if kills == 0 || time.Now().Before(next) {
						return false
					}
					next = time.Now().Add(every)
					kills--
					return true
				},
				KillStager: stagerKills,
			})
			if report.KilledStager != len(stagerKills) || report.KilledReaders < 3 || full && report.KilledReaders < 900 {
				t.Errorf("stager was killed %d times and readers %d times: the trial was too short to prove anything", report.KilledStager, report.KilledReaders)
			}
		})
	}
}

// Two readers take 200 shards through a window over each protocol. One of them is
// killed, and then the server, which comes back.
func TestWindowLosesNothingOverAnyProtocol(t *testing.T) {
	size, pace := 128<<10, 10*time.Millisecond
	if full {
		size, pace = 4<<20, 50*time.Millisecond
	}
	binary, how := build(t), theOutage()
	overStores(t, func(t *testing.T, s store) {
		all := s.fill(t, binary, "noise", 200, size)
		killed := false
		report, log := s.window(t, binary, "noise", all, Config{
			Readers: 2, Pace: pace,
			KillReaders: func(acked, total int) bool {
				if killed || acked < total/4 {
					return false
				}
				killed = true
				return true
			},
			Halfway: s.dies(t.Context(), how.away),
		})
		if report.KilledReaders != 1 {
			t.Errorf("%d readers were killed, want 1", report.KilledReaders)
		}
		wasAway(t, log)
	})
}

package trial

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dustin/go-humanize"
)

// goesOnWithin is how long after a server's return a command may still be waiting: the
// pause between two tries, at most 15 seconds, and --stall-after for a connection that
// does not know that its other end has died.
const goesOnWithin = 45 * time.Second

// outage is how an outage is tried.
type outage struct {
	size      int64         // of the data, in bytes
	bandwidth int64         // bytes per second, so that the server dies in the middle
	away      time.Duration // from its death until it is started again
}

// theOutage is the short form, or with STAGER_TRIAL=full the long one.
func theOutage() outage {
	if full {
		return outage{size: 1 << 30, bandwidth: 256 << 20, away: 10 * time.Second}
	}
	return outage{size: 32 << 20, bandwidth: 16 << 20, away: 1500 * time.Millisecond}
}

// A server that dies in the middle of a prefetch, of a push of a checkpoint, and comes
// back, costs the time that it was away. Nothing is lost, nothing mixed, the log tells
// it in two lines, and of the bytes that were there few are sent again.
func TestServersDieAndComeBack(t *testing.T) {
	binary, how := build(t), theOutage()
	source := t.TempDir()
	if err := noise(source, how.size); err != nil {
		t.Fatal(err)
	}
	overStores(t, func(t *testing.T, s store) {
		if m, err := measure(s.command(t, binary, "push", source, s.url("data")), 0, nil); err != nil || m.exit != 0 {
			t.Fatalf("push: %v, exit %d\n%s", err, m.exit, m.log)
		}
		limit := fmt.Sprint("--bandwidth=", how.bandwidth)
		t.Run("prefetch", func(t *testing.T) {
			with := t.TempDir()
			calm, err := measure(s.command(t, binary, "prefetch", limit, s.url("data"), t.TempDir()), 0, nil)
			if err != nil || calm.exit != 0 {
				t.Fatalf("%v, exit %d\n%s", err, calm.exit, calm.log)
			}
			hit := s.hit(t, s.command(t, binary, "prefetch", limit, s.url("data"), with), how, calm)
			same(t, with, source, ".stager")
			t.Logf("\ncalm:   %v\noutage: %v\nread again: %s", calm, hit, humanize.IBytes(uint64(max(0, hit.read-calm.read))))
		})
		t.Run("push", func(t *testing.T) {
			calm, err := measure(s.command(t, binary, "push", "--commit", "--step=1", limit, source, s.url("calm")), 0, nil)
			if err != nil || calm.exit != 0 {
				t.Fatalf("%v, exit %d\n%s", err, calm.exit, calm.log)
			}
			hit := s.hit(t, s.command(t, binary, "push", "--commit", "--step=2", limit, source, s.url("ckpt")), how, calm)
			s.holdsOneCommit(t, "step-00000002")
			restored := t.TempDir()
			if m, err := measure(s.command(t, binary, "restore", s.url("ckpt"), restored), 0, nil); err != nil || m.exit != 0 {
				t.Fatalf("restore: %v, exit %d\n%s", err, m.exit, m.log)
			}
			same(t, restored, source, "RESTORED.json")
			t.Logf("\ncalm:   %v\noutage: %v\nwritten again: %s", calm, hit, humanize.IBytes(uint64(max(0, hit.written-calm.written))))
		})
	})
}

// noise fills a directory with a big file, some of middle size and many small ones: more than can be
// asked for at once, so a server that goes when half of the bytes have come is missed. What was asked
// for before lies in the buffers of sockets, and comes even so: with 64 small files a whole run once
// went on, and ended well, beside a server that was silent.
func noise(dir string, size int64) error {
	files := map[string]int64{"big/model.bin": size / 2}
	for i := range 8 {
		files[fmt.Sprintf("shards/%d.tar", i)] = size / 32
	}
	for i := range 512 {
		files[fmt.Sprintf("small/%d/%d", i%8, i/8)] = size / 2048
	}
	for name, size := range files {
		if err := writeNoise(filepath.Join(dir, name), size); err != nil {
			return err
		}
	}
	return nil
}

func (s store) command(t *testing.T, binary string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), s.Env()...)
	return cmd
}

// hit runs a command in whose middle the server dies, and checks that it ends right, in
// time, and that its log tells why it took so long.
func (s store) hit(t *testing.T, cmd *exec.Cmd, how outage, calm measured) measured {
	t.Helper()
	var gone time.Duration
	m, err := measure(cmd, how.size/4+rand.Int64N(how.size/4), func(log func() (string, error)) error {
		var err error
		gone, err = s.goAway(t.Context(), how.away, log)
		return err
	})
	if err != nil || m.exit != 0 {
		t.Fatalf("%v, exit %d\n%s", err, m.exit, m.log)
	}
	if most := calm.took + gone + goesOnWithin; m.took > most {
		t.Errorf("it took %v with a server that was away for %v, want at most %v\n%s", m.took, gone, most, m.log)
	}
	wasAway(t, m.log)
	return m
}

// outageLine and returnLine are what stager says of a server that was gone.
const outageLine, returnLine = "store request failed, retrying", "store responds again"

// goAway kills the server and starts it again after a while. It reports how long the server was gone.
func (s store) goAway(ctx context.Context, away time.Duration, log func() (string, error)) (gone time.Duration, err error) {
	died := time.Now()
	if err := s.Kill(); err != nil {
		return 0, err
	}
	err = s.comeBack(ctx, away, log)
	return time.Since(died), err
}

// comeBack starts a server that was killed, after a while, when a log tells that it was missed.
func (s store) comeBack(ctx context.Context, away time.Duration, log func() (string, error)) error {
	died := time.Now()
	time.Sleep(away) // it is the outage itself, not a wait for something
	for {
		text, err := log()
		if err != nil {
			return err
		}
		if strings.Contains(text, outageLine) {
			return s.Start(ctx)
		}
		if time.Since(died) > goesOnWithin {
			return errors.New("a server that was killed is not missed")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// dies is what happens halfway through a trial whose server is gone for a while.
func (s store) dies(ctx context.Context, away time.Duration) func(*Pause) error {
	return func(p *Pause) error {
		if err := errors.Join(s.Kill(), p.End()); err != nil {
			return err
		}
		return s.comeBack(ctx, away, p.Log)
	}
}

// wasAway checks that a log tells of one outage, and of its end.
func wasAway(t *testing.T, log string) {
	t.Helper()
	for _, words := range []string{outageLine, returnLine} {
		if n := strings.Count(log, words); n != 1 {
			t.Errorf("the log says %d times %q, want once:\n%s", n, words, log)
		}
	}
}

// unfinished are the names of what is not written to its end: our temporary files, and
// the parts of uploads where the S3 server keeps them.
var unfinished = regexp.MustCompile(`\.stager-tmp-|\.sgwtmp/.*/.|an upload without end`)

// holdsOneCommit looks at what the server has: one COMMIT of the step, and no half file.
func (s store) holdsOneCommit(t *testing.T, step string) {
	t.Helper()
	names, err := s.names(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	commits := 0
	for _, name := range names {
		if path.Base(name) == "COMMIT.json" && strings.Contains(name, step) {
			commits++
		}
		if unfinished.MatchString(name) {
			t.Errorf("left behind: %s", name)
		}
	}
	if commits != 1 {
		t.Errorf("%d commits of %s, want 1, in %q", commits, step, names)
	}
}

// same compares two directories, file by file, but for what stager keeps in the first.
func same(t *testing.T, got, want, own string) {
	t.Helper()
	digests := func(root string) map[string]string {
		sums := make(map[string]string)
		err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			sum, err := digest(p)
			sums[strings.TrimPrefix(p, root)] = sum
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return sums
	}
	is, should := digests(got), digests(want)
	for name, sum := range should {
		if is[name] != sum {
			t.Errorf("%s has SHA-256 %q, want %q", name, is[name], sum)
		}
	}
	for name := range is {
		if _, ok := should[name]; !ok && !strings.HasPrefix(name, "/"+own) {
			t.Errorf("%s is not of the source", name)
		}
	}
}

// silence is how patient commands are with a server that says nothing.
const (
	silenceStall = time.Second
	silenceRetry = 4 * time.Second
)

// A server that takes connections and answers nothing is given up at the deadline that
// the flags state, with its own exit code; one that was silent for a while is not.
func TestServersFallSilent(t *testing.T) {
	binary := build(t)
	const size = 16 << 20
	source := t.TempDir()
	if err := noise(source, size); err != nil {
		t.Fatal(err)
	}
	overStores(t, func(t *testing.T, s store) {
		if m, err := measure(s.command(t, binary, "push", source, s.url("data")), 0, nil); err != nil || m.exit != 0 {
			t.Fatalf("push: %v, exit %d\n%s", err, m.exit, m.log)
		}
		patience := []string{fmt.Sprint("--stall-after=", silenceStall), fmt.Sprint("--retry-for=", silenceRetry)}
		prefetch := func(dst string) *exec.Cmd {
			return s.command(t, binary, append([]string{"prefetch", "--bandwidth=8Mi", s.url("data"), dst}, patience...)...)
		}
		givesUp := func(t *testing.T, m measured, silent time.Time, err error) {
			t.Helper()
			// The last try begins before patience ends, and is cut when it stalls.
			most := silenceRetry + silenceStall + 5*time.Second
			if took := time.Since(silent); err != nil || m.exit != 69 || took > most {
				t.Errorf("%v, exit %d after %v of silence, want exit 69 after at most %v\n%s", err, m.exit, took, most, m.log)
			}
		}
		thaw := func() { // also when the test has failed
			if err := s.Thaw(); err != nil {
				t.Error(err)
			}
		}
		t.Run("from the middle on", func(t *testing.T) {
			var silent time.Time
			defer thaw()
			m, err := measure(prefetch(t.TempDir()), size/4, func(func() (string, error)) error {
				silent = time.Now()
				return s.Freeze()
			})
			givesUp(t, m, silent, err)
		})
		t.Run("from the beginning on", func(t *testing.T) {
			defer thaw()
			if err := s.Freeze(); err != nil {
				t.Fatal(err)
			}
			silent := time.Now()
			m, err := measure(s.command(t, binary, append([]string{"ls", s.url("data")}, patience...)...), 0, nil)
			givesUp(t, m, silent, err)
		})
		t.Run("for a while", func(t *testing.T) {
			defer thaw()
			dst := t.TempDir() // in which nothing came before the silence
			cmd := prefetch(dst)
			cmd.Args = append(cmd.Args, "--retry-for=1m") // it need not be patient for long, but others load the machine
			m, err := measure(cmd, size/8, func(func() (string, error)) error {
				err := s.Freeze()
				time.Sleep(silenceStall * 2) // it is the silence itself
				return errors.Join(err, s.Thaw())
			})
			if err != nil || m.exit != 0 {
				t.Fatalf("%v, exit %d\n%s", err, m.exit, m.log)
			}
			same(t, dst, source, ".stager")
		})
	})
}

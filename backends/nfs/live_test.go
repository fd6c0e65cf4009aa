package nfs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/backendtest"
)

// live is the real server of this test binary: a command of module e2e, which the
// product's own module must not import.
var live server

type server struct {
	once  sync.Once
	err   error
	env   map[string]string
	cmd   *exec.Cmd
	in    io.Writer
	lines *bufio.Scanner
}

func TestMain(m *testing.M) {
	code := m.Run()
	if live.cmd != nil {
		_ = live.cmd.Process.Signal(syscall.SIGTERM)
		_ = live.cmd.Wait()
	}
	os.Exit(code)
}

// startWithin leaves time to build and install the server, which happens once on a
// machine.
const startWithin = 9 * time.Minute

func (s *server) start() error {
	s.once.Do(func() { s.err = s.startOnce() })
	return s.err
}

func (s *server) startOnce() error {
	if err := backendtest.Asked("nfs"); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "nfsserver-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, "nfsserver")
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-o", bin, "./cmd/nfsserver")
	build.Dir = filepath.Join("..", "..", "e2e")
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building it: %w\n%s", err, out)
	}
	cmd := exec.Command(bin)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if s.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	watch := time.AfterFunc(startWithin, func() { _ = cmd.Process.Kill() })
	defer watch.Stop()
	s.env = make(map[string]string)
	s.lines = bufio.NewScanner(out)
	if err := s.until("# ready"); err != nil {
		return errors.Join(err, cmd.Wait())
	}
	s.cmd = cmd
	return nil
}

// until reads what the server prints up to a line.
func (s *server) until(last string) error {
	for s.lines.Scan() {
		if s.lines.Text() == last {
			return nil
		}
		name, value, _ := strings.Cut(strings.TrimPrefix(s.lines.Text(), "export "), "=")
		s.env[name] = strings.Trim(value, "'")
	}
	return fmt.Errorf("it ended before %q: %w", last, s.lines.Err())
}

// tell gives the server a command and waits until it is carried out.
func (s *server) tell(t *testing.T, command, answer string) {
	t.Helper()
	if _, err := fmt.Fprintln(s.in, command); err != nil {
		t.Fatal(err)
	}
	if err := s.until(answer); err != nil {
		t.Fatal(err)
	}
}

// url names a folder of the server; params are like "vers=3&rsize=64KiB".
func (s *server) url(path, params string) string {
	if strings.Contains(params, "vers=3") {
		params += "&mountport=" + s.env["NFS_MOUNT_PORT"]
	}
	return "nfs://" + s.env["NFS_SERVER"] + path + "?" + params
}

// openLive opens a folder of the real server.
func openLive(t *testing.T, path, params string) *backends.Store {
	t.Helper()
	backendtest.Require(t, "nfs", live.start())
	store, err := backends.NewRegistry(Scheme()).Open(t.Context(), live.url(path, params), backends.Options{RetryFor: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// eachVersion runs a test with both versions of the protocol.
func eachVersion(t *testing.T, run func(t *testing.T, params string)) {
	for _, params := range versions {
		t.Run(params, func(t *testing.T) { run(t, params) })
	}
}

var versions = []string{"vers=4.1", "vers=3"}

func TestContract(t *testing.T) {
	for _, params := range append(versions, "vers=4.1&rsize=32KiB&slots=3&conns=1", "vers=3&rsize=32KiB&slots=2") {
		t.Run(params, func(t *testing.T) {
			t.Parallel()
			backendtest.Run(t, func(t *testing.T) *backends.Store { return openLive(t, "/data/contract-"+params, params) }, backendtest.Options{})
		})
	}
}

// contentsTo compares what is written to it.
type contentsTo struct {
	want *backendtest.Contents
	mu   sync.Mutex
	bad  int64
	n    int64
}

func (c *contentsTo) WriteAt(p []byte, off int64) (int, error) {
	want := make([]byte, len(p))
	n, _ := c.want.ReadAt(want, off)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += int64(len(p))
	if string(want[:n]) != string(p) {
		c.bad++
	}
	return len(p), nil
}

func TestAServerIsKilledWhileItIsRead(t *testing.T) {
	eachVersion(t, func(t *testing.T, params string) {
		store := openLive(t, "/data/killed-"+params, params+"&rsize=64KiB")
		const size = 48 << 20
		obj, err := store.Put(t.Context(), "k", backendtest.ContentsOf("killed", size), size, backends.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		to := &slow{contentsTo: contentsTo{want: backendtest.ContentsOf("killed", size)}, half: make(chan struct{}), on: make(chan struct{})}
		done := make(chan error, 1)
		go func() {
			_, err := store.ReadRange(t.Context(), obj, 0, size, to, nil)
			done <- err
		}()
		<-to.half
		live.tell(t, "kill", "# killed")
		close(to.on)
		time.Sleep(time.Second) // the client meets a server that is gone
		live.tell(t, "start", "# ready")
		select {
		case err = <-done:
		case <-time.After(time.Minute):
			t.Fatal("the read has not ended a minute after the server came back")
		}
		if err != nil || to.bad > 0 || to.n < size {
			t.Errorf("read over a restart: %v, %d bytes of %d, %d blocks wrong", err, to.n, size, to.bad)
		}
	})
}

// slow stops at half of what comes.
type slow struct {
	contentsTo
	once     sync.Once
	half, on chan struct{}
}

func (s *slow) WriteAt(p []byte, off int64) (int, error) {
	if off >= 24<<20 {
		s.once.Do(func() { close(s.half); <-s.on })
	}
	return s.contentsTo.WriteAt(p, off)
}

// pausing stops a source at half.
type pausing struct {
	io.ReaderAt
	once     sync.Once
	half, on chan struct{}
}

func (p *pausing) ReadAt(b []byte, off int64) (int, error) {
	if off >= 24<<20 {
		p.once.Do(func() { close(p.half); <-p.on })
	}
	return p.ReaderAt.ReadAt(b, off)
}

func TestAServerIsKilledWhileItIsWritten(t *testing.T) {
	eachVersion(t, func(t *testing.T, params string) {
		store := openLive(t, "/data/written-"+params, params)
		const size = 48 << 20
		src := &pausing{ReaderAt: backendtest.ContentsOf("written", size), half: make(chan struct{}), on: make(chan struct{})}
		done := make(chan error, 1)
		go func() {
			_, err := store.Put(t.Context(), "k", src, size, backends.CreateOptions{})
			done <- err
		}()
		<-src.half
		live.tell(t, "kill", "# killed")
		close(src.on)
		time.Sleep(time.Second)
		live.tell(t, "start", "# ready")
		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("put over a restart: %v", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("the write has not ended a minute after the server came back")
		}
		obj, err := store.Stat(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		to := &contentsTo{want: backendtest.ContentsOf("written", size)}
		if _, err := store.ReadRange(t.Context(), obj, 0, size, to, nil); err != nil || to.bad > 0 || obj.Size != size {
			t.Errorf("what was written over a restart: %v, %d bytes, %d blocks wrong", err, obj.Size, to.bad)
		}
	})
}

func TestWordsOfARealServer(t *testing.T) {
	backendtest.Require(t, "nfs", live.start())
	eachVersion(t, func(t *testing.T, params string) {
		put := func(path, params string) func() error {
			return func() error {
				store, err := backends.NewRegistry(Scheme()).Open(t.Context(), live.url(path, params), backends.Options{RetryFor: time.Nanosecond})
				if err != nil {
					return err
				}
				defer store.Close()
				_, err = store.PutBytes(t.Context(), "k", []byte("x"), backends.CreateOptions{})
				return err
			}
		}
		_ = os.Symlink("elsewhere", filepath.Join(live.env["NFS_DIR"], "link")) // the second time it is there
		store := openLive(t, "/data", params)
		stat := func(key string) func() error {
			return func() error { _, err := store.Stat(t.Context(), key); return err }
		}
		list := func(prefix string) func() error {
			return func() (last error) {
				for _, err := range store.List(t.Context(), prefix) {
					last = err
				}
				return last
			}
		}
		secret := filepath.Join(live.env["NFS_DIR"], "secret")
		if err := os.MkdirAll(secret, 0o700); err != nil {
			t.Fatal(err)
		}
		const fine = backends.Kind(255)
		// Version 4 does not show an export to those whom it does not let in.
		hidden := backends.NotExist
		if params == "vers=3" {
			hidden = backends.Permission
		}
		for name, tt := range map[string]struct {
			do    func() error
			kind  backends.Kind
			words string
		}{
			"read-only":      {put("/readonly", params), backends.Permission, "read-only"},
			"another user":   {put("/data/secret", params+"&uid=4711&gid=4711"), backends.Permission, "?uid="},
			"no export":      {put("/nosuchexport", params), hidden, ""},
			"other port":     {put("/secure", params+"&resvport=false"), hidden, ""},
			"reserved port":  {put("/secure", params+"&resvport=true"), fine, ""},
			"auto port":      {put("/secure", params), fine, ""},
			"version 3 only": {put("/old", "vers=auto&mountport="+live.env["NFS_MOUNT_PORT"]), fine, ""},
			"symbolic link":  {stat("link"), backends.Unsupported, "symbolic link"},
			"list of a link": {list("lin"), backends.Unsupported, "symbolic link"},
			"below a link":   {stat("link/k"), backends.Unsupported, "symbolic link"},
		} {
			err := tt.do()
			got := fine
			if err != nil {
				got = backends.KindOf(err)
			}
			if got != tt.kind || !strings.Contains(fmt.Sprint(err), tt.words) {
				t.Errorf("%s: got %v (%v), want %q of kind %v", name, err, got, tt.words, tt.kind)
			}
		}
	})
}

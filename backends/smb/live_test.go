package smb

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/backendtest"
)

// The real servers of this test binary. They differ in what they demand of clients.
var live = map[string]*server{"plain": {mode: "plain"}, "signed": {mode: "signed"}, "encrypted": {mode: "encrypted"}}

// server is a command of module e2e, which the product's own module must not import.
type server struct {
	mode string
	once sync.Once
	env  map[string]string
	err  error
	cmd  *exec.Cmd
	done chan error
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, s := range live {
		if s.cmd != nil {
			_ = s.cmd.Process.Signal(syscall.SIGTERM)
			<-s.done //nolint:errcheck // it was told to end
		}
	}
	os.Exit(code)
}

// startWithin leaves time to install and build, which happens once on a machine.
const startWithin = 5 * time.Minute

func (s *server) start() error {
	s.once.Do(func() { s.err = s.startOnce() })
	return s.err
}

func (s *server) startOnce() error {
	if err := backendtest.Asked("smb"); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "smbserver-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, "smbserver")
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-o", bin, "./cmd/smbserver")
	build.Dir = filepath.Join("..", "..", "e2e")
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building it: %w\n%s", err, out)
	}
	s.cmd = exec.Command(bin, "-mode="+s.mode, "-down=500ms")
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	started := make(chan error)
	s.done = make(chan error, 1)
	go func() {
		// Pdeathsig is sent when the thread ends that started the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			state, err := s.cmd.Process.Wait()
			if err == nil && !state.Success() {
				err = errors.New(state.String())
			}
			s.done <- err
		}
	}()
	if err := <-started; err != nil {
		s.cmd = nil
		return err
	}
	watch := time.AfterFunc(startWithin, func() { _ = s.cmd.Process.Kill() })
	defer watch.Stop()
	s.env = make(map[string]string)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "# ready" {
			return nil
		}
		name, value, _ := strings.Cut(strings.TrimPrefix(lines.Text(), "export "), "=")
		s.env[name] = strings.Trim(value, "'")
	}
	s.cmd = nil
	return fmt.Errorf("it ended before it was ready: %w", errors.Join(<-s.done, lines.Err()))
}

// getenv is the environment that finds the server, with some variables changed.
func (s *server) getenv(changed ...string) func(string) string {
	return func(name string) string {
		for _, c := range changed {
			if n, v, _ := strings.Cut(c, "="); n == name {
				return v
			}
		}
		return s.env[name]
	}
}

func need(t *testing.T, mode string) *server {
	t.Helper()
	s := live[mode]
	backendtest.Require(t, "smb", s.start())
	return s
}

// openLive opens a path of the server, such as "data/folder/?signing=off".
func openLive(t *testing.T, s *server, path string, changed ...string) *backends.Store {
	t.Helper()
	store, err := backends.NewRegistry(Scheme()).Open(t.Context(), "smb://"+s.env["SMB_SERVER"]+"/"+path,
		backends.Options{Getenv: s.getenv(changed...), RetryFor: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

func TestContract(t *testing.T) {
	whole := backendtest.Options{MaxSize: 25 << 20} // three parts and a little: signing is slow under the race detector
	short := backendtest.Options{MaxSize: 1 << 20, Many: 50}
	for _, tt := range []struct {
		name, mode, params string
		opts               backendtest.Options
	}{
		{"plain", "plain", "?signing=off", whole},
		{"signed", "signed", "", whole},
		{"encrypted", "encrypted", "", whole},
		{"names as they are", "plain", "?mapchars=off&signing=off", short},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := need(t, tt.mode)
			t.Parallel()
			mapped := !strings.Contains(tt.params, "mapchars=off")
			tt.opts.Unfit = func(key string) bool { return checkKey("create", key, mapped) != nil }
			backendtest.Run(t, func(t *testing.T) *backends.Store {
				return openLive(t, s, fmt.Sprintf("data/%s/%s", strings.ReplaceAll(tt.name, " ", "-"), tt.params))
			}, tt.opts)
		})
	}
}

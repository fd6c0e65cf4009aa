package trial

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stager-dev/stager/e2e/lossyfs"
)

// stage is a file system in memory that is mounted, and what stager works on there.
type stage struct {
	binary string
	fs     *lossyfs.FS
	dir    string // of the machine's own disk
	mnt    string // the file system
	boot   string // file with the name of another boot; "": this one
	watch  bool   // record calls of syncfs, too
	brief  bool   // calls may fail: do not wait long
	again  bool   // after a loss of power, a kill or a fault

	unmount func() error
	mu      sync.Mutex
	log     bytes.Buffer
}

// mountStage mounts the file system in a new directory below parent.
func mountStage(binary, parent string, fs *lossyfs.FS) (*stage, error) {
	dir, err := os.MkdirTemp(parent, "")
	if err != nil {
		return nil, err
	}
	s := &stage{binary: binary, fs: fs, dir: dir, mnt: filepath.Join(dir, "m")}
	if err := os.Mkdir(s.mnt, 0o755); err != nil {
		return nil, err
	}
	s.unmount, err = fs.Mount(s.mnt)
	return s, err
}

func (s *stage) close() error { return errors.Join(s.unmount(), os.RemoveAll(s.dir)) }

// anotherBoot has what starts from here on see the nth boot of the machine after this one.
func (s *stage) anotherBoot(n int) error {
	s.boot = filepath.Join(s.dir, "boot")
	return os.WriteFile(s.boot, fmt.Appendf(nil, "5ad2bd7f-7d1b-4c3b-9d5c-%012d\n", n), 0o644)
}

// Write is the process's, for its log.
func (s *stage) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

func (s *stage) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// start starts stager.
func (s *stage) start(args ...string) (*process, error) {
	cmd := exec.Command(s.binary, args...)
	if s.boot != "" {
		cmd = afterBoot(s.boot, s.binary, args...)
	}
	cmd.Stdout, cmd.Stderr = s, s
	if s.watch {
		return watched(s.fs, cmd)
	}
	return start(cmd)
}

// errHangs says that stager does not end.
var errHangs = errors.New("stager does not end")

// wait returns the exit code.
func (s *stage) wait(p *process) (int, error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-time.After(patience):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // it says where it hangs
		select {
		case <-p.done:
		case <-time.After(patience / 6):
			p.kill()
		}
		return -1, errHangs
	}
}

// run runs a command of stager to its end.
func (s *stage) run(args ...string) (int, error) {
	p, err := s.start(args...)
	if err != nil {
		return -1, err
	}
	return s.wait(p)
}

// daemon runs "stager run" with a spec while work goes on, and ends it.
func (s *stage) daemon(spec string, work func(c *apiClient) error) (code int, err error) {
	plan := filepath.Join(s.dir, "plan.yaml")
	spec = strings.NewReplacer("MNT", s.mnt, "DIR", filepath.Dir(s.dir)).Replace(spec)
	if err := os.WriteFile(plan, []byte("apiVersion: stager.dev/v1alpha1\nkind: StagePlan\nmetadata: {name: lossy}\nspec:\n"+spec), 0o644); err != nil {
		return -1, err
	}
	socket := filepath.Join(s.dir, "s")
	p, err := s.start("run", "-f", plan, "--socket", socket)
	if err != nil {
		return -1, err
	}
	defer p.kill()
	api := &apiClient{process: p, http: &http.Client{Timeout: 2 * patience, Transport: &http.Transport{
		MaxConnsPerHost: 1, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}}
	err = work(api)
	if err == nil { // one that has just been started has no handler of signals yet
		_, err = api.call("GET", "/healthz", "", nil)
	}
	if errors.Is(err, errEnded) {
		err = nil // its exit code says more
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	code, werr := s.wait(p)
	return code, errors.Join(err, werr)
}

// errEnded says that the daemon has ended by itself.
var errEnded = errors.New("the daemon ended")

// apiClient calls a daemon's API.
type apiClient struct {
	process *process
	http    *http.Client
}

// call sends a request, again while the daemon starts.
func (c *apiClient) call(method, path, body string, out any) (int, error) {
	for until := time.Now().Add(patience); ; {
		r, err := http.NewRequestWithContext(context.Background(), method, "http://s"+path, strings.NewReader(body))
		if err != nil {
			return 0, err
		}
		r.Header.Set("Stager-Bind", "connection")
		resp, err := c.http.Do(r)
		if err == nil {
			var text []byte
			text, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close() // read whole
			if err == nil && resp.StatusCode != http.StatusServiceUnavailable {
				if out != nil && resp.StatusCode == http.StatusOK {
					err = json.Unmarshal(text, out)
				}
				return resp.StatusCode, err
			}
		}
		select {
		case <-c.process.done:
			return 0, errEnded
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(until) {
			return 0, fmt.Errorf("%s is not answered: %w", path, err)
		}
	}
}

package hdfs

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

// live is the real HDFS of this test binary.
var live server

// server is a command of module e2e, which the product's own module must not import.
type server struct {
	once   sync.Once
	env    map[string]string
	err    error
	cmd    *exec.Cmd
	orders io.WriteCloser
	lines  *bufio.Scanner
}

func TestMain(m *testing.M) {
	code := m.Run()
	if live.cmd != nil {
		_ = live.cmd.Process.Signal(syscall.SIGTERM)
		_ = live.cmd.Wait()
	}
	os.Exit(code)
}

// startWithin leaves time to fetch the server, which happens once on a machine.
const startWithin = 9 * time.Minute

func (s *server) start() error {
	s.once.Do(func() { s.err = s.startOnce() })
	return s.err
}

func (s *server) startOnce() error {
	if err := backendtest.Asked("hdfs"); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "hdfsserver-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, "hdfsserver")
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-o", bin, "./cmd/hdfsserver")
	build.Dir = filepath.Join("..", "..", "e2e")
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building it: %w\n%s", err, out)
	}
	s.cmd = exec.Command(bin, "-keys=stager")
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if s.orders, err = s.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	watch := time.AfterFunc(startWithin, func() { _ = s.cmd.Process.Kill() })
	defer watch.Stop()
	s.env = make(map[string]string)
	for s.lines = bufio.NewScanner(out); s.lines.Scan(); {
		if s.lines.Text() == "# ready" {
			return nil
		}
		name, value, _ := strings.Cut(strings.TrimPrefix(s.lines.Text(), "export "), "=")
		s.env[name] = strings.Trim(value, "'")
	}
	err = s.cmd.Wait()
	s.cmd = nil
	return fmt.Errorf("it ended before it was ready: %w", errors.Join(err, s.lines.Err()))
}

// order has the server do something, such as "kill datanode".
func (s *server) order(t *testing.T, order string) {
	t.Helper()
	if _, err := fmt.Fprintln(s.orders, order); err != nil {
		t.Fatal(err)
	}
	if !s.lines.Scan() || s.lines.Text() != "# done" {
		t.Fatalf("%s: the server says %q", order, s.lines.Text())
	}
}

// shell runs "hdfs dfs" as its users do, and returns what it prints.
func (s *server) shell(t *testing.T, class string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "java", append([]string{"-Xmx256m", "-cp", s.env["HADOOP_CLASSPATH"], class}, args...)...)
	cmd.Env = append(os.Environ(), "HADOOP_USER_NAME="+s.env["HADOOP_USER_NAME"])
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", class, args, err, out)
	}
	return string(out)
}

const fsShell = "org.apache.hadoop.fs.FsShell"

// openLive opens a folder of the real server, with the environment changed, and the
// patience of a test.
func openLive(t *testing.T, path string, changed ...string) *backends.Store {
	t.Helper()
	backendtest.Require(t, "hdfs", live.start())
	s, err := backends.NewRegistry(Scheme()).Open(t.Context(), "hdfs://"+path, backends.Options{
		RetryFor: 10 * time.Second,
		Getenv: func(name string) string {
			for _, c := range changed {
				if n, v, _ := strings.Cut(c, "="); n == name {
					return v
				}
			}
			return live.env[name]
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// folder is one of the test's own.
func folder(t *testing.T) string {
	return fmt.Sprintf("/%s-%d/", strings.NewReplacer("/", "_", ":", "_").Replace(t.Name()), time.Now().UnixNano())
}

func unfit(key string) bool { return strings.Contains(key, ":") }

func TestContract(t *testing.T) {
	backendtest.Require(t, "hdfs", live.start())
	backendtest.Run(t, func(t *testing.T) *backends.Store {
		return openLive(t, folder(t))
	}, backendtest.Options{Unfit: unfit})
}

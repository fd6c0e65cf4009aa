// Package live starts the real servers that tests of protocols talk to:
//
//	server := live.Start(t, "smb", "-mode=signed")
//
// A server is a command of module e2e, which the product's own module must not
// import. All tests of a binary share it. It ends with the binary, however that ends.
package live

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startWithin leaves time to build the server, which happens once on a machine.
const startWithin = 9 * time.Minute

// Server is a server that runs.
type Server struct {
	Env map[string]string // the variables by which clients find it

	start func() error

	mu      sync.Mutex // guards all below: one order at a time
	orders  io.Writer
	answers *bufio.Scanner
}

var servers = struct {
	mu sync.Mutex
	by map[string]*Server // by the words of their command
}{by: make(map[string]*Server)}

// Start is the server of a protocol, started when a test first asks for it; "go run
// ./cmd/server PROTOCOL -h" in e2e tells its flags. It ends the test as [Require] does
// when there can be none.
func Start(t testing.TB, protocol string, flags ...string) *Server {
	t.Helper()
	words := append([]string{protocol, "-orders"}, flags...)
	servers.mu.Lock()
	s := servers.by[strings.Join(words, " ")]
	if s == nil {
		s = &Server{Env: make(map[string]string)}
		s.start = sync.OnceValue(func() error { return s.run(words) })
		servers.by[strings.Join(words, " ")] = s
	}
	servers.mu.Unlock()
	Require(t, protocol, s.start())
	return s
}

// run starts the command and waits until it is ready.
func (s *Server) run(words []string) error {
	_, here, _, _ := runtime.Caller(0)
	e2e := filepath.Join(filepath.Dir(here), "..", "..", "..", "e2e")
	cmd := exec.Command("go", append([]string{"run", "-C", e2e, "./cmd/server"}, words...)...)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the tests, which end it
	orders, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	watch := time.AfterFunc(startWithin, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer watch.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders, s.answers = orders, bufio.NewScanner(out)
	err = s.until("# ready")
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.Join(err, cmd.Wait())
	}
	return err
}

// until reads what the server says up to a line, and returns how it failed, if it
// says so.
func (s *Server) until(last string) error {
	for s.answers.Scan() {
		line := s.answers.Text()
		if why, failed := strings.CutPrefix(line, "# failed "); failed {
			return errors.New(why)
		}
		if line == last {
			return nil
		}
		if name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "="); ok {
			s.Env[name] = strings.Trim(value, "'")
		}
	}
	return fmt.Errorf("the server ended before it said %q: %w", last, errors.Join(s.answers.Err(), io.ErrUnexpectedEOF))
}

// Order has the server do something and waits until it is done, such as "kill", which
// ends it as a power cut does, and "start".
func (s *Server) Order(t testing.TB, order string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := fmt.Fprintln(s.orders, order); err != nil {
		t.Fatal(err)
	}
	if err := s.until("# done"); err != nil {
		t.Fatalf("%s: %v", order, err)
	}
}

// Getenv is the environment that finds the server, with some variables changed, as
// NAME=VALUE.
func (s *Server) Getenv(changed ...string) func(name string) string {
	return func(name string) string {
		for _, c := range changed {
			if n, v, _ := strings.Cut(c, "="); n == name {
				return v
			}
		}
		return s.Env[name]
	}
}

// Run runs a program in the server's environment, such as kinit or java, and returns
// what it prints.
func (s *Server) Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = os.Environ()
	for name, value := range s.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

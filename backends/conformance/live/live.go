// Package live starts real servers for tests of protocols:
//
//	server := live.Start(t, "smb", "-mode=signed")
//
// A server is a command of module e2e, which the product's module must not import. All tests of a
// binary share it. It ends with the binary, even if that is killed.
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

// startWithin includes the time to build the server, which happens once per machine.
const startWithin = 9 * time.Minute

// Server is a running server.
type Server struct {
	Env map[string]string // the variables with which clients find it

	start func() error

	mu      sync.Mutex // guards the fields below: one order at a time
	orders  io.Writer
	answers *bufio.Scanner
}

var servers = struct {
	mu sync.Mutex
	by map[string]*Server // by the arguments of their command
}{by: make(map[string]*Server)}

// Start returns the server of a protocol and starts it on first use. "go run ./cmd/server PROTOCOL
// -h" in e2e prints its flags. If the server is not available, Start ends the test like [Require].
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the tests, which stop it
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

// until reads the output of the server up to a line. It returns the failure that the server
// reports, if any.
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

// Order sends an order to the server and waits until it is done. "kill" ends the server like a
// power failure; "start" starts it again.
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

// Getenv returns an environment with which clients find the server. changed overrides variables, as
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

// Run runs a program, such as kinit or java, in the environment of the server and returns its
// output.
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

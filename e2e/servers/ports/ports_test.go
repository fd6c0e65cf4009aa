package ports

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// A trial's server was down for a second, the port that it had had was some client's
// when it came back, and it ended at once.
func TestPortsAreNotUsedByClients(t *testing.T) {
	seen := make(map[string]bool)
	for range 100 {
		address, err := Free("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := strconv.Atoi(port); err != nil || n >= forConnections() {
			t.Errorf("port %s (%v), want one below %d", port, err, forConnections())
		}
		if seen[address] {
			t.Errorf("%s is given twice", address)
		}
		seen[address] = true
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Errorf("it is not free: %v", err)
			continue
		}
		defer l.Close() // it took nothing
	}
}

// The tests of two packages, which ran at the same time, got the same port, and the
// second server did not start. Each of two processes has a thousand of some twenty
// thousand here: by chance they would share dozens.
func TestPortsAreOfOneProcess(t *testing.T) {
	const each = 1000
	if os.Getenv("STAGER_TEST_PORTS_OTHER") != "" {
		for range each {
			address, err := Free("127.0.0.1")
			if err != nil {
				t.Fatal(err)
			}
			fmt.Println(address)
		}
		_, _ = io.Copy(io.Discard, os.Stdin) // until the first process has its own
		return
	}
	other := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$") //nolint:noctx // it ends with its input
	other.Env = append(os.Environ(), "STAGER_TEST_PORTS_OTHER=1")
	other.Stderr = os.Stderr
	input, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = input.Close() // it ends
		if err := other.Wait(); err != nil {
			t.Error(err)
		}
	}()
	theirs := make(map[string]bool)
	for lines := bufio.NewScanner(output); len(theirs) < each && lines.Scan(); {
		theirs[lines.Text()] = true
	}
	if len(theirs) != each {
		t.Fatalf("the other process has %d ports, want %d", len(theirs), each)
	}
	for range each {
		address, err := Free("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		if theirs[address] {
			t.Errorf("%s is another process's, too", address)
		}
	}
}

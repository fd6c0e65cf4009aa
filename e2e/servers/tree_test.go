package servers

import (
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A process for a connection that was accepted while the server was being killed went on to serve:
// it was in a group of its own, forked after the server's children had been listed, and a trial in
// which the server "died" saw no outage. A child that had been forked and not yet closed what it
// inherited kept the port open for a moment after Kill.
func TestKillEndsAllOfAServer(t *testing.T) {
	for round := range 8 {
		mark := "STAGER_TREE_TEST=" + rand.Text()
		// Each of its children makes a session of its own and forks again.
		cmd := exec.Command("sh", "-c", `n=0; while [ $n -lt 60 ]; do setsid sh -c "sleep 1000 & sleep 1000" & n=$((n+1)); done; wait`)
		cmd.Env = append(os.Environ(), mark)
		p, err := start(cmd, nil)
		if err != nil {
			t.Fatal(err)
		}
		for len(descendants(cmd.Process.Pid)) < 5*round+1 {
			select {
			case <-p.done:
				t.Fatalf("the server ended by itself: %v", p.err)
			default:
			}
		}
		if err := p.kill(); err != nil {
			t.Errorf("kill: %v", err)
		}
		if left := marked(t, mark); len(left) > 0 {
			t.Fatalf("after Kill with %d descendants, %q still run", 5*round+1, left)
		}
	}
}

// A server that does not answer has no child that does, and all of them answer after Thaw.
func TestFreezeStopsAllOfAServer(t *testing.T) {
	cmd := exec.Command("sh", "-c", `for i in 1 2 3; do setsid sh -c "sleep 1000; :" & done; wait`)
	p, err := start(cmd, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.kill() })
	for len(descendants(cmd.Process.Pid)) < 6 {
	}
	pids, err := p.freeze()
	if err != nil || len(pids) != 7 {
		t.Errorf("freeze = %v, %v; want 7 processes", pids, err)
	}
	wants := func(stopped bool) { // one that waits for a stopped child to begin its program is in D
		t.Helper()
		for _, pid := range pids {
			for state := stateOf(pid); strings.IndexByte("TD", state) < 0 == stopped; state = stateOf(pid) {
				if state == 0 {
					t.Fatalf("process %d is gone", pid)
				}
			}
		}
	}
	wants(true)
	if err := p.thaw(); err != nil {
		t.Errorf("thaw: %v", err)
	}
	wants(false)
}

// marked are the command lines of the processes that have a variable and have not ended.
func marked(t *testing.T, variable string) (found []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(variable)) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			found = append(found, string(bytes.ReplaceAll(line, []byte{0}, []byte(" "))))
		}
	}
	return found
}

// stateOf returns the state of a process, a letter as in /proc/PID/stat, or 0 if there is none.
func stateOf(pid int) byte {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(text, []byte(") "))
	return append(rest, 0)[0]
}

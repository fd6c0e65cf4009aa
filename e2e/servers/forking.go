package servers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// forking is a daemon with a process for each connection, which has a process group of its own.
type forking struct{ daemon }

// Kill ends the server and all its connections.
func (d *forking) Kill() error { return errors.Join(d.signalAll(syscall.SIGKILL), d.daemon.Kill()) }

// Freeze keeps the server and its connections from responding, until Thaw.
func (d *forking) Freeze() error { return errors.Join(d.daemon.Freeze(), d.signalAll(syscall.SIGSTOP)) }

// Thaw ends Freeze.
func (d *forking) Thaw() error { return errors.Join(d.signalAll(syscall.SIGCONT), d.daemon.Thaw()) }

// signalAll sends a signal to all descendants of the server.
func (d *forking) signalAll(signal syscall.Signal) (err error) {
	if d.process == nil {
		return nil
	}
	for _, pid := range descendants(d.process.cmd.Process.Pid) {
		if kerr := syscall.Kill(pid, signal); kerr != nil && !errors.Is(kerr, syscall.ESRCH) {
			err = errors.Join(err, kerr)
		}
	}
	return err
}

// descendants are the children of a process, their children, and so on.
func descendants(pid int) (all []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is good
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread that has ended has none
		for _, field := range strings.Fields(string(text)) {
			var child int
			if _, err := fmt.Sscan(field, &child); err == nil {
				all = append(append(all, child), descendants(child)...)
			}
		}
	}
	return all
}

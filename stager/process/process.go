// Package process runs a container's command as an init process does: [Run] forwards signals and
// reaps orphaned processes.
//
// stager is often the first process of a container. Orphaned processes of the command then become
// children of stager. Each stays a zombie and occupies a process id until stager waits for it.
package process

import (
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/stager-dev/stager/backends/sys"
)

// signalBase is added to a signal's number if a signal killed the command, as shells do.
const signalBase = 128

// Run runs a command, forwards signals to it, and returns its exit code. An error means that it
// cannot be started. Orphaned processes become children of this process and are reaped. If this
// process is the first of its PID namespace, the remaining processes are killed when the command
// exits, as they would be without a parent. No other code of the process may start children while a
// command runs. A nil env means this process's environment; the last of several values of a
// variable counts.
func Run(command, env []string, signals <-chan os.Signal) (code int, err error) {
	return RunStarted(command, env, signals, func(int) {})
}

// RunStarted is [Run], and calls started with the process id when the command runs.
func RunStarted(command, env []string, signals <-chan os.Signal, started func(pid int)) (code int, err error) {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return 0, err
	}
	sys.AdoptOrphans()
	child, ended, err := all.start(path, command, env)
	if err != nil {
		return 0, err
	}
	started(child.Pid)
	for {
		select {
		case s := <-signals:
			_ = child.Signal(s) // it may have exited
		case status := <-ended:
			_ = child.Release() // already reaped
			if os.Getpid() == 1 {
				_ = syscall.Kill(-1, syscall.SIGKILL) // ESRCH: no process is left
			}
			if status.Signaled() {
				return signalBase + int(status.Signal()), nil
			}
			return status.ExitStatus(), nil
		}
	}
}

// reaper waits for every child of this process, in one goroutine. If two goroutines waited for any
// child, each could get the exit of the other's child.
type reaper struct {
	mu       sync.Mutex // guards all below; held while a child is started
	commands map[int]chan<- syscall.WaitStatus
	running  bool
}

var all = reaper{commands: make(map[int]chan<- syscall.WaitStatus)}

func (r *reaper) start(path string, command, env []string) (*os.Process, <-chan syscall.WaitStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	child, err := os.StartProcess(path, command, &os.ProcAttr{Env: (&exec.Cmd{Env: env}).Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return nil, nil, err
	}
	ended := make(chan syscall.WaitStatus, 1)
	r.commands[child.Pid] = ended
	if !r.running {
		r.running = true
		go r.reap()
	}
	return child, ended, nil
}

// reap waits for children until there are none.
func (r *reaper) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // ECHILD
			if r.rest() {
				return
			}
		default:
			r.report(pid, status)
		}
	}
}

// report sends the exit status of a command to its waiter.
func (r *reaper) report(pid int, status syscall.WaitStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ended, ours := r.commands[pid]; ours {
		ended <- status
		delete(r.commands, pid)
	}
}

// rest stops the reaper unless a command was started meanwhile.
func (r *reaper) rest() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = len(r.commands) > 0
	return !r.running
}

// Package process runs a container's command as an init process does: signals are passed
// on, and orphans are reaped.
//
// stager is often the first process of a container. Whatever the command and its children
// leave behind then becomes a child of stager, and stays a zombie, with its number in use,
// until stager waits for it.
package process

import (
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalBase is added to a signal's number when a command died of it, as shells do.
const signalBase = 128

// Run runs a command, passes signals on to it, and returns its exit code when it has
// ended; an error says that it cannot be started. Orphans become children of this process
// and are reaped. What the command leaves running ends with it where this process is the
// first of its PID namespace, as it would without a parent. No other code of the process
// may start children while a command runs. A nil env is this process's; of two values of
// a variable the later one counts.
func Run(command, env []string, signals <-chan os.Signal) (code int, err error) {
	return RunStarted(command, env, signals, func(int) {})
}

// RunStarted is [Run], and calls started with the process's number when it runs.
func RunStarted(command, env []string, signals <-chan os.Signal, started func(pid int)) (code int, err error) {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return 0, err
	}
	// Without it orphans go to another process, which is as good.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	child, ended, err := all.start(path, command, env)
	if err != nil {
		return 0, err
	}
	started(child.Pid)
	for {
		select {
		case s := <-signals:
			_ = child.Signal(s) // it may just have ended
		case status := <-ended:
			_ = child.Release() // reaped already
			if os.Getpid() == 1 {
				_ = syscall.Kill(-1, syscall.SIGKILL) // ESRCH: nothing is left
			}
			if status.Signaled() {
				return signalBase + int(status.Signal()), nil
			}
			return status.ExitStatus(), nil
		}
	}
}

// reaper waits for every child of this process, in one goroutine: of two that wait for any
// child each could take the end of the other's.
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

// reap waits for all children until there are none.
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

// report sends the end of a command to who waits for it.
func (r *reaper) report(pid int, status syscall.WaitStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ended, ours := r.commands[pid]; ours {
		ended <- status
		delete(r.commands, pid)
	}
}

// rest ends the reaper unless a command was started meanwhile.
func (r *reaper) rest() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = len(r.commands) > 0
	return !r.running
}

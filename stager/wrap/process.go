package wrap

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/stager"
)

// signalBase is added to a signal's number when a command died of it, as shells do.
const signalBase = 128

// run runs a command, passes signals on to it, and returns its exit code when it has
// ended. Orphans become children of this process and are reaped. What the command leaves
// running ends with it where this process is the first of its PID namespace, as it would
// without a parent.
func run(command, env []string, signals <-chan os.Signal) (code int, err error) {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return 0, &stager.StartError{Err: err}
	}
	// Without it orphans go to another process, which is as good.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	child, err := os.StartProcess(path, command, &os.ProcAttr{Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 0, &stager.StartError{Err: err}
	}
	ended := make(chan syscall.WaitStatus, 1)
	go reap(child.Pid, ended)
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

// reap waits for all children until there are none, and reports the end of one.
func reap(pid int, ended chan<- syscall.WaitStatus) {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // ECHILD
			return
		case got == pid:
			ended <- status
		}
	}
}

package stager

import (
	"fmt"
	"os"
	"os/exec"

	"github.com/stager-dev/stager/stager/process"
)

// Child is a command that stager runs between staging and saving.
type Child struct {
	Command []string // what to run, with its arguments

	signals chan os.Signal
}

// Signal forwards a signal to the daemon's child, if there is one.
func (d *Daemon) Signal(s os.Signal) {
	if d.cfg.Child == nil {
		return
	}
	select {
	case d.cfg.Child.signals <- s:
	default: // the child has not started, or has exited
	}
}

// ChildError reports that the command exited with a code other than 0.
type ChildError struct{ Code int }

func (e *ChildError) Error() string { return fmt.Sprintf("the command exited with code %d", e.Code) }

// StartError reports that the command could not be started.
type StartError struct{ Err error }

func (e *StartError) Error() string { return fmt.Sprintf("cannot start the command: %v", e.Err) }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// NotStartedError reports that the drain began before the inputs were ready, so the command never
// ran.
type NotStartedError struct{}

func (*NotStartedError) Error() string {
	return "stopped before the inputs were ready, so the command did not run; run it again to resume"
}

// run runs the command, forwards signals, and returns when it has exited: nil, a *ChildError, or a
// *StartError. If stager is killed, the command continues, because its data are plain files.
func (c *Child) run(env []string) error {
	code, err := process.Run(c.Command, append((&exec.Cmd{}).Environ(), env...), c.signals)
	switch {
	case err != nil:
		return &StartError{err}
	case code != 0:
		return &ChildError{code}
	}
	return nil
}

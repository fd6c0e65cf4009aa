package stager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Child is a command that stager runs between staging and saving.
type Child struct {
	Command []string // what to run, with its arguments

	signals chan os.Signal
}

// Signal hands a signal on to the daemon's child, if there is one.
func (d *Daemon) Signal(s os.Signal) {
	if d.cfg.Child == nil {
		return
	}
	select {
	case d.cfg.Child.signals <- s:
	default: // nobody takes them: the child has not begun, or has ended
	}
}

// ChildError says that the command ended with another code than 0.
type ChildError struct{ Code int }

func (e *ChildError) Error() string { return fmt.Sprintf("the command ended with code %d", e.Code) }

// startError says that the command could not be started.
type startError struct{ err error }

func (e *startError) Error() string { return fmt.Sprintf("the command cannot be started: %v", e.err) }
func (e *startError) Unwrap() error { return e.err }

// ExitCode is EX_USAGE: it was said wrong.
func (e *startError) ExitCode() int { return 64 }

// signalBase is added to a signal's number when a command died of it, as shells do.
const signalBase = 128

// run starts the command, hands signals on and returns when it has ended: nil, a
// *ChildError, or another error when it could not be started. When ctx ends the
// command is killed.
func (c *Child) run(ctx context.Context, env []string) error {
	cmd := exec.CommandContext(ctx, c.Command[0], c.Command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(cmd.Environ(), env...)
	// Should stager be killed, the command goes on: its data are plain files.
	if err := cmd.Start(); err != nil {
		return &startError{err}
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case s := <-c.signals:
				_ = cmd.Process.Signal(s) // it may just have ended
			case <-done:
				return
			}
		}
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &exit):
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return &ChildError{signalBase + int(ws.Signal())}
		}
		return &ChildError{exit.ExitCode()}
	}
	return err
}

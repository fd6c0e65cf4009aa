package servers

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a server that ends with whoever started it, however that ends.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how; after done
}

// start runs the command in a process group of its own.
func start(cmd *exec.Cmd, output io.Writer) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := StartTied(cmd, func(err error) {
		p.err = err
		close(p.done)
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// StartTied starts a child that the kernel kills when this process ends, however that ends. It calls
// ended when the child has ended, with the result of its Wait.
func StartTied(cmd *exec.Cmd, ended func(error)) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	go func() {
		// Pdeathsig is sent when the thread ends that started the child, as those do that enter the
		// network of a server. So this thread stays until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended(cmd.Wait())
		}
	}()
	return <-started
}

// signal sends one to the group; that nobody is left to hear it is no error.
func (p *process) signal(s syscall.Signal) error {
	if err := syscall.Kill(-p.cmd.Process.Pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// stop asks the group to end and, when it has not after a while, ends it.
func (p *process) stop() error {
	select {
	case <-p.done:
		return nil
	default:
	}
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := p.signal(s); err != nil {
			return err
		}
		select {
		case <-p.done:
			return nil
		case <-time.After(5 * time.Second):
		}
	}
	return fmt.Errorf("process %d does not end", p.cmd.Process.Pid)
}

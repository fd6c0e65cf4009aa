package servers

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"sync/atomic"
	"time"
)

// localhost is where servers listen: nobody else reaches them.
const localhost = "127.0.0.1"

// daemon is a server, one process or one for each connection, that can be killed and started again.
type daemon struct {
	name    string // as people know it
	command func() *exec.Cmd
	answers func(context.Context) error // nil once the server can be used
	log     io.Writer
	process *process
	pid     atomic.Int64 // of the process, for other goroutines; 0 before the first start
}

// startWithin is how long a server may take until it answers.
const startWithin = time.Minute

// Start starts the server again after Kill, at the same address, and returns when it
// answers.
func (d *daemon) Start(ctx context.Context) (err error) {
	if d.process, err = start(d.command(), d.log); err != nil {
		return err
	}
	d.pid.Store(int64(d.process.cmd.Process.Pid))
	return until(ctx, d.name, startWithin, d.answers, d.process)
}

// Kill ends the server as a power cut does, with all its connections.
func (d *daemon) Kill() error {
	if d.process == nil {
		return nil
	}
	return d.process.kill()
}

// Freeze keeps the server and its connections from answering, until Thaw.
func (d *daemon) Freeze() error {
	_, err := d.process.freeze()
	return err
}

// Thaw ends Freeze.
func (d *daemon) Thaw() error { return d.process.thaw() }

func (d *daemon) stop() error {
	if d.process == nil {
		return nil
	}
	return d.process.stop()
}

// until waits for a server to answer, for as long as its processes run.
func until(ctx context.Context, name string, within time.Duration, answers func(context.Context) error, processes ...*process) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := answers(ctx)
		if err == nil {
			return nil
		}
		for _, p := range processes {
			select {
			case <-p.done:
				return fmt.Errorf("%s ended at once: %w", name, p.err)
			default:
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", name, err)
		case <-tick.C:
		}
	}
}

// takesConnections is the answer of a server that is ready when it listens.
func takesConnections(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// Package wrap is the parent process of a container's command. [Run] forwards signals, reaps
// orphaned processes, and delays the container's exit until stager's sidecar has saved the outputs.
//
// Kubernetes ignores the state of a sidecar: a pod whose main container exits with 0 while the
// sidecar is down has succeeded, and its volumes are removed. As long as the main container runs,
// Kubernetes restarts the sidecar, with a back-off of up to five minutes. So Run keeps the main
// container running. The command's container has no credentials for the store, so Run does not save
// by itself.
package wrap

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/stager-dev/stager/stager"
	"github.com/stager-dev/stager/stager/process"
)

// Config configures Run. All fields except SuccessOnly, Ended and Log are required.
type Config struct {
	Command []string         // the program and its arguments
	Env     []string         // of the command
	Signals <-chan os.Signal // to forward to the command
	// Save returns nil when the sidecar has saved all outputs after the command exited with the
	// code, and an error if it has not.
	Save func(ctx context.Context, code int) error
	// Away reports whether an error of Save means that the sidecar does not respond yet.
	Away func(error) bool
	// Wait limits the time from the exit of the command until its outputs are saved.
	Wait time.Duration
	// SuccessOnly waits only after exit code 0. If a pod restarts its container after a failure,
	// the volumes and the sidecar stay.
	SuccessOnly bool
	// Ended reports whether the sidecar has received the signal that the pod ends, and has saved
	// everything. A command that ignores SIGTERM is then killed, since otherwise its pod would last
	// for the whole grace period. Nil: it is never killed.
	Ended func(ctx context.Context) bool
	Log   *slog.Logger // nil: silent
}

// pause is the interval between requests to a sidecar that does not respond.
const pause = time.Second

var silent = slog.New(slog.DiscardHandler)

// Run runs the command and returns nil, or a *stager.ChildError with its exit code. It returns a
// *stager.UnsavedError if the command exited with 0 and its outputs are not saved, and a
// *stager.StartError if the command cannot be started.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Log == nil {
		cfg.Log = silent
	}
	signals, runs := cfg.Signals, func(int) {}
	if cfg.Ended != nil {
		d := &deaf{cfg: cfg, ignores: ignoresTerm, signals: make(chan os.Signal), pid: make(chan int, 1)}
		watching, stop := context.WithCancel(ctx)
		defer stop()
		go d.watch(watching)
		signals, runs = d.signals, func(pid int) { d.pid <- pid }
	}
	code, err := process.RunStarted(cfg.Command, cfg.Env, signals, runs)
	if err != nil {
		return &stager.StartError{Err: err}
	}
	saved := cfg.hold(ctx, code)
	switch {
	case code != 0:
		if saved != nil {
			cfg.Log.Error("outputs are not saved", "error", saved)
		}
		return &stager.ChildError{Code: code}
	case saved != nil:
		return &stager.UnsavedError{Err: saved}
	}
	return nil
}

// hold returns nil when the outputs are saved, or the reason why they are not.
func (cfg Config) hold(ctx context.Context, code int) error {
	if code != 0 && cfg.SuccessOnly {
		cfg.Log.Info("command failed, outputs stay on their volumes", "code", code)
		return nil
	}
	cause := fmt.Errorf("the sidecar did not save them within %s; --save-wait sets this limit", cfg.Wait)
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Wait, cause)
	defer cancel()
	cfg.Log.Info("command exited, waiting for the sidecar to save its outputs", "code", code)
	for away := false; ; {
		err := cfg.Save(ctx, code)
		switch {
		case err == nil:
			cfg.Log.Info("outputs saved")
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !cfg.Away(err):
			return err
		case !away:
			cfg.Log.Warn("sidecar does not respond, waiting for its restart; Kubernetes may take up to 5 minutes", "error", err, "wait", cfg.Wait)
			away = true
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

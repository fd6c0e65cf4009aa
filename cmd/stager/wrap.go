package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/stager/api"
	"github.com/stager-dev/stager/stager/wrap"
)

type wrapCmd struct {
	socket
	SaveWait   time.Duration `help:"Maximum time from the command's exit until its outputs are saved. Kubernetes may take 5 minutes to restart a sidecar." default:"16m"`
	SaveAfter  string        `help:"Wait for outputs after any exit of the command, or only after success (if failures restart the container)." enum:"any,success" default:"any"`
	ShareFiles bool          `help:"Make the command's new files group-accessible (umask 00x), so that a stager of another user in the group can save them."`
	Command    []string      `arg:"" passthrough:"" help:"Command to run, after --."`
}

// Help returns the detailed help.
func (wrapCmd) Help() string {
	return `Runs a command next to stager's sidecar, forwards signals and reaps orphaned processes. After the command has exited, waits until the sidecar has saved the outputs, even if the sidecar is being restarted. Exits with the command's exit code, or with 75 if the command succeeded and required outputs are not saved, so that the Job does not complete. Needs the sidecar's socket and no credentials. "stager inject" adds it. Has no --dry-run: it does nothing but run the command, and wait.

    stager wrap -- python train.py`
}

func (c wrapCmd) Run(log *slog.Logger) error {
	command := c.Command
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 {
		return &usageError{errors.New("no command; put it after --")}
	}
	if err := onlyOnLinux(runtime.GOOS, "wrap", "the sidecar that it waits for does"); err != nil {
		return err
	}
	if c.ShareFiles {
		shareFiles()
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, handedOn()...)
	defer signal.Stop(signals)
	// Signals go to the command and do not interrupt saving: the end of a pod has its own grace
	// period.
	return wrap.Run(context.Background(), wrap.Config{
		Command: command, Env: os.Environ(), Signals: signals, Save: c.save, Away: api.Unready, Ended: c.ended,
		Wait: c.SaveWait, SuccessOnly: c.SaveAfter == "success", Log: log,
	})
}

// save returns when the sidecar has saved all outputs, or cannot.
func (c wrapCmd) save(ctx context.Context, code int) error {
	_, _, err := c.call(ctx, http.MethodPost, "/v1/save", url.Values{"code": {strconv.Itoa(code)}}, nil, nil)
	return err
}

// ended reports whether the sidecar has received the signal that the pod ends, and has saved
// everything.
func (c wrapCmd) ended(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var snap api.Snapshot
	if _, _, err := c.call(ctx, http.MethodGet, "/v1/status", nil, nil, &snap); err != nil || snap.Phase != api.Drained {
		return false
	}
	for _, out := range snap.Outputs {
		if out.Uploading != nil || len(out.Pending)+len(out.Waiting)+len(out.Failed) > 0 || out.LastError != "" {
			return false
		}
	}
	return true
}

// shareFiles clears the group's bits in the umask, which the command inherits.
func shareFiles() {
	const group = 0o070
	unix.Umask(unix.Umask(0o077) &^ group)
}

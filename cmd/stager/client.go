package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/stager-dev/stager/stager/api"
)

// socket is the flag for the daemon's socket.
type socket struct {
	Socket string `help:"Socket of the running stager. Default: /run/stager/stager.sock, or stager.sock in $XDG_RUNTIME_DIR for users without access there." placeholder:"PATH"`
}

const systemSocket = "/run/stager/stager.sock"

// path returns the flag's value, or else the default for this user.
func (s socket) path() string {
	if s.Socket != "" {
		return s.Socket
	}
	mine := os.Getenv("XDG_RUNTIME_DIR")
	if mine == "" || syscall.Access(filepath.Dir(systemSocket), 0x2 /* W_OK */) == nil || os.Geteuid() == 0 {
		return systemSocket
	}
	return filepath.Join(mine, "stager.sock")
}

// patient has the flags of commands that a trainer's loop runs: they retry while the daemon
// restarts.
type patient struct {
	Patience time.Duration `help:"How long to wait for a stager that is starting." default:"30s"`
}

// insist retries until the daemon gives a final response, or Patience is over.
func (p patient) insist(ctx context.Context, call func() error) error {
	started, reported := time.Now(), false
	for {
		err := call()
		if !api.Unready(err) || time.Since(started) >= p.Patience {
			return err
		}
		if !reported && time.Since(started) > time.Second {
			reported = true
			fmt.Fprintf(os.Stderr, "stager: waiting up to %s: %v\n", p.Patience, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// call sends a request to the daemon; see [api.Client].
func (s socket) call(ctx context.Context, method, path string, query url.Values, in, out any) (int, http.Header, error) {
	return api.Client{Socket: s.path()}.Call(ctx, method, path, query, in, out)
}

// inGroup has the flag for readers of an input with groups.
type inGroup struct {
	Group *int `help:"Reader group, counted from 0, of an input with groups." placeholder:"N"`
}

func (g inGroup) add(query url.Values) url.Values {
	if g.Group != nil {
		query.Set("group", strconv.Itoa(*g.Group))
	}
	return query
}

type nextCmd struct {
	socket
	patient
	inGroup
	shape
	Input  string        `arg:"" help:"Name of the input in the plan."`
	Reader string        `help:"Reader name. Default: the calling process, so each shell loop is one reader." placeholder:"ID"`
	Wait   time.Duration `help:"How long to wait for a shard; 0 waits forever." default:"0s"`
	Epoch  *int          `help:"Epoch to read, counted from 0. Exits with 1 when it has ended, instead of starting the next." placeholder:"N"`
	Early  bool          `help:"With --epoch: treat the epoch as ended when other readers hold all remaining shards."`
}

// Help shows the loop for which next is made.
func (nextCmd) Help() string {
	return `Exits with 1 at the end of each epoch, which ends a shell loop, and with 75 when --wait has passed. Has no --dry-run: which shard is next is decided when it is leased. "stager status" shows the progress.

    while p=$(stager next train); do ./step "$p" && stager ack "$p"; done
    for e in 0 1 2; do while p=$(stager next train --epoch $e); do ./step "$p" && stager ack "$p"; done; done`
}

// query returns the parameters of the lease request.
func (c nextCmd) query() (url.Values, error) {
	who := c.Reader
	if who == "" {
		who = "pid-" + strconv.Itoa(os.Getppid())
	}
	query := c.add(url.Values{"reader": {who}})
	switch {
	case c.Epoch != nil && *c.Epoch < 0:
		return nil, &usageError{fmt.Errorf("--epoch=%d: epochs are counted from 0", *c.Epoch)}
	case c.Epoch != nil:
		query.Set("epoch", strconv.Itoa(*c.Epoch))
	case c.Early:
		return nil, &usageError{errors.New("--early requires --epoch, so that a repeated call does not read the next epoch")}
	}
	if c.Early {
		query.Set("end", "early")
	}
	return query, nil
}

func (c nextCmd) Run(ctx context.Context) error {
	query, err := c.query()
	if err != nil {
		return err
	}
	started := time.Now()
	for {
		wait := 30 * time.Second
		if c.Wait > 0 {
			wait = min(wait, max(c.Wait-time.Since(started), 0))
		}
		var lease api.LeaseResponse
		var code int
		var header http.Header
		query.Set("wait", wait.String())
		err := c.insist(ctx, func() (err error) {
			code, header, err = c.call(ctx, http.MethodPost, "/v1/inputs/"+c.Input+"/lease", query, nil, &lease)
			return err
		})
		switch {
		case err != nil:
			return err
		case code == http.StatusNoContent && (c.Wait == 0 || time.Since(started) < c.Wait):
			continue
		case code == http.StatusNoContent:
			fmt.Fprintf(os.Stderr, "stager: no shard within %s; waiting for: %s\n", c.Wait, header.Get("Stager-Wait-Cause"))
			return exitError(exitTryAgain)
		case lease.End && c.Epoch != nil && lease.Epoch < *c.Epoch: // the end of an earlier epoch
			continue
		case lease.End:
			return exitError(exitEnd)
		case c.structured():
			return c.line(lease)
		}
		fmt.Println(lease.Path)
		return nil
	}
}

type ackCmd struct {
	socket
	patient
	inGroup
	Path string `arg:"" help:"Path that next printed."`
}

// Help shows the loop for which ack is made.
func (ackCmd) Help() string {
	return `A shard that is not acknowledged is redelivered when its lease expires, or after "stager nack". Has no --dry-run: it changes one lease, of the path given.

    while p=$(stager next train); do ./step "$p" && stager ack "$p"; done`
}

func (c ackCmd) Run(ctx context.Context) error {
	return c.insist(ctx, func() error {
		_, _, err := c.call(ctx, http.MethodPost, "/v1/ack", c.add(url.Values{"path": {c.Path}}), nil, nil)
		return err
	})
}

type nackCmd struct {
	socket
	patient
	inGroup
	Path   string `arg:"" help:"Path that next printed."`
	Reason string `help:"Reason, for the log and the report."`
}

// Help returns the detailed help.
func (nackCmd) Help() string {
	return `After three nacks, or three readers that died with it, a shard is quarantined and the input fails. Has no --dry-run: it changes one lease, of the path given.

    stager nack "$p" --reason "not a tar file"`
}

func (c nackCmd) Run(ctx context.Context) error {
	return c.insist(ctx, func() error {
		_, _, err := c.call(ctx, http.MethodPost, "/v1/nack", c.add(url.Values{"path": {c.Path}, "reason": {c.Reason}}), nil, nil)
		return err
	})
}

type commitCmd struct {
	rehearsing
	socket
	patient
	Output      string        `arg:"" help:"Name of the output in the plan."`
	Dir         string        `arg:"" help:"Checkpoint file or directory inside the output's directory." type:"path"`
	Step        *int64        `help:"Step number. Default: the number at the end of the name, or the modification time for names such as last.pt." placeholder:"N"`
	SamplesSeen int64         `help:"Samples that the trainer has consumed since the job began; a restore with --rewind continues after them." placeholder:"N"`
	AllNodes    bool          `help:"The files of all nodes are complete, also those of nodes that have none: for a trainer that calls this on one node, after all nodes have written."`
	Wait        time.Duration `help:"Wait this long for the checkpoint to be saved; exit 75 if it is not." env:"STAGER_COMMIT_WAIT"`
}

// Help returns the detailed help.
func (commitCmd) Help() string {
	return `When it returns, the files are held by hard links, and the trainer may delete its own. Names without a number, such as last.pt, may also be overwritten in place: they are held by copies, which share blocks on xfs and btrfs. Exits with 75 if there is no space for a copy. With --wait, returns when the checkpoint is saved.

    stager commit ckpt /out/step-12000
    stager commit ckpt /out/last.pt
    stager commit ckpt /out/last --step 12000 --wait 10m`
}

func (c commitCmd) Run(ctx context.Context) error {
	if c.DryRun {
		return c.rehearse(ctx)
	}
	var step json.RawMessage
	var code int
	err := c.insist(ctx, func() (err error) {
		code, _, err = c.call(ctx, http.MethodPost, "/v1/outputs/"+c.Output+"/commit", url.Values{"wait": {c.Wait.String()}},
			api.CommitOrder{Path: c.Dir, Step: c.Step, SamplesSeen: c.SamplesSeen, AllNodes: c.AllNodes}, &step)
		return err
	})
	if err != nil {
		return err
	}
	if c.Wait > 0 && code == http.StatusAccepted {
		fmt.Fprintf(os.Stderr, "stager: not saved within %s; saving continues in the background\n", c.Wait)
		return exitError(exitTryAgain)
	}
	return nil
}

type drainCmd struct {
	rehearsing
	socket
	Deadline time.Duration `help:"Time left. Default: the deadline of the plan."`
	Wait     bool          `help:"Wait until everything is saved." default:"true" negatable:"" env:"STAGER_DRAIN_WAIT"`
}

// Help returns the detailed help.
func (drainCmd) Help() string {
	return `For a preStop hook, or for programs that learn of the end before SIGTERM arrives.

    stager drain
    stager drain --dry-run
    stager drain --deadline 90s --no-wait`
}

func (c drainCmd) Run(ctx context.Context) error {
	if c.DryRun {
		return c.rehearse(ctx)
	}
	var snap api.Snapshot
	if _, _, err := c.call(ctx, http.MethodPost, "/v1/drain", url.Values{"deadline": {c.Deadline.String()}}, nil, &snap); err != nil {
		return err
	}
	for c.Wait && snap.Phase != api.Drained && snap.Phase != api.Ended {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
		if _, _, err := c.call(ctx, http.MethodGet, "/v1/status", nil, nil, &snap); err != nil {
			var gone *api.UnreachableError
			if errors.As(err, &gone) {
				return nil // the daemon has drained and exited
			}
			return err
		}
	}
	return nil
}

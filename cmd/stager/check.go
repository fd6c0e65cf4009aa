package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"

	"github.com/stager-dev/stager/stager/check"
)

// shape is how a command prints what it found.
type shape struct {
	Output string `short:"o" help:"text for people, json for programs." enum:"text,json" default:"text"`
	JSON   bool   `help:"The same as --output json."`
}

func (s shape) json() bool { return s.JSON || s.Output == "json" }

type checkCmd struct {
	storing
	shape
	URL      string   `arg:"" optional:"" help:"A folder of a store that may be written to, such as s3://bucket/scratch/."`
	File     string   `short:"f" help:"Try the destinations of this StagePlan that several nodes share (nodes: all), with a few requests; - is standard input." placeholder:"PLAN"`
	ReadOnly bool     `help:"Write nothing: check what can be told by reading what is there."`
	Size     quantity `help:"Size of the file that the speed of one stream is measured with, such as 1Gi; 0 is what takes a few seconds." default:"0"`
}

// Help shows what is typed.
func (checkCmd) Help() string {
	return `Tries the promises that stager relies on, one after the other, and measures. All happens in a scratch folder of a random name below URL, which is removed at the end; nothing else is touched. Where the credentials may not write, what can be told by reading is checked.

Exit code 0 says that all holds; 76 that bytes were wrong, 77 that something was refused, 69 that the store could not be reached, 78 that it answers otherwise than it must. The report says what that means and what to do.

    stager check s3://bucket/scratch/
    stager check smb://user@server/share/ -o json > report.json
    stager check --read-only hdfs://namenode:8020/datasets/imagenet/
    stager check --size 4Gi nfs://server/export/

With -f it says of each output that several nodes save together how its destination keeps them apart, and which promise is weaker there.

    stager check -f plan.yaml`
}

func (c checkCmd) Run(ctx context.Context, log *slog.Logger, to *console) error {
	switch {
	case (c.URL == "") == (c.File == ""):
		return &usageError{errors.New("name a URL, or a plan with -f")}
	case c.File != "":
		return c.plan(ctx, log)
	}
	store, err := c.open(ctx, c.URL, log)
	if err != nil {
		return err
	}
	defer store.Close() // what was written is removed
	show := newSpinner(to, log)
	report, err := runCheck(ctx, check.Config{
		Store: store, ReadOnly: c.ReadOnly, Size: int64(c.Size),
		Progress: func(now string) { show.update(moving{Phase: "checking: " + now}) },
	})
	show.close()
	if err != nil {
		return err
	}
	if c.json() {
		out := json.NewEncoder(os.Stdout)
		out.SetIndent("", "  ")
		err = out.Encode(report)
	} else {
		err = printReport(os.Stdout, report)
	}
	return errors.Join(err, report.Err())
}

// runCheck is check.Run, whose end by a signal has an exit code.
func runCheck(ctx context.Context, cfg check.Config) (*check.Report, error) {
	report, err := check.Run(ctx, cfg)
	var interrupted *check.InterruptedError
	if errors.As(err, &interrupted) {
		err = &stoppedError{interrupted}
	}
	return report, err
}

// stoppedError is the end of a check by a signal.
type stoppedError struct{ *check.InterruptedError }

// ExitCode is that of all that was interrupted.
func (e *stoppedError) ExitCode() int { return exitTryAgain }

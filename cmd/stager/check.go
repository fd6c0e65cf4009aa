package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/stager-dev/stager/stager/check"
)

type checkCmd struct {
	storing
	shape
	rehearsing
	URL      string   `arg:"" optional:"" help:"Writable location in a store, such as s3://bucket/scratch/."`
	File     string   `short:"f" help:"Check the destinations that several nodes of this StagePlan share (nodes: all); - reads standard input." placeholder:"PLAN"`
	PlanYAML string   `name:"plan-yaml" help:"StagePlan as a string instead of a file." placeholder:"YAML"`
	All      bool     `help:"Check every source and destination of the plan, the sources only by reading."`
	ReadOnly bool     `help:"Do not write; check what reading can prove."`
	Size     quantity `help:"Size of the file that measures single-stream speed, such as 1Gi; 0 takes a few seconds." default:"0"`
}

// Help returns the detailed help.
func (checkCmd) Help() string {
	return `Tests the guarantees that stager relies on, one by one, and measures speed. Works in a randomly named scratch directory below URL and removes it; nothing else is touched. Without write permission it checks what reading can prove.

Exit codes: 0 all guarantees hold, 69 store unreachable, 76 wrong bytes, 77 permission denied, 78 a guarantee does not hold. The report explains each result and what to do.

    stager check s3://bucket/scratch/
    stager check smb://user@server/share/ -o json > report.json
    stager check --read-only hdfs://namenode:8020/datasets/imagenet/
    stager check --size 4Gi nfs://server/export/

With -f, checks every output that several nodes save together, and reports how its destination keeps the nodes apart.

    stager check -f plan.yaml

With --all, checks every source and destination of a plan as "stager run" would reach it. In a pod the plan is in STAGER_PLAN_YAML.

    stager check --all -f plan.yaml`
}

func (c checkCmd) Run(ctx context.Context, log *slog.Logger, to *console) error {
	// StallAfter keeps its default: a store that is slow under load breaks no promise.
	c.RetryFor = cmp.Or(c.RetryFor, interactiveRetryFor)
	switch {
	case c.All:
		return c.all(ctx, log, to)
	case (c.URL == "") == (c.File == ""):
		return &usageError{errors.New("specify a URL, or a plan with -f")}
	case c.File != "":
		return c.plan(ctx, log)
	}
	report, err := c.store(ctx, log, to)
	if err != nil || report == nil {
		return err
	}
	if c.structured() {
		err = c.value(report)
	} else {
		err = printReport(os.Stdout, report)
	}
	return errors.Join(err, report.Err())
}

// store checks the store at URL. With DryRun it prints that, and returns no report.
func (c checkCmd) store(ctx context.Context, log *slog.Logger, to *console) (*check.Report, error) {
	store, err := c.openFor(ctx, c.URL, !c.ReadOnly, log)
	if err != nil {
		return nil, err
	}
	defer store.Close() // all writes are removed already
	if c.DryRun {
		return nil, c.intend(measured{Does: "check", Store: store.Name(), Writes: !c.ReadOnly})
	}
	show := newSpinner(to, log)
	defer show.close()
	return runCheck(ctx, check.Config{
		Store: store, ReadOnly: c.ReadOnly, Size: int64(c.Size),
		Progress: func(now string) { show.update(moving{Phase: "checking: " + now}) },
	})
}

// runCheck is check.Run with an exit code for interruption by a signal.
func runCheck(ctx context.Context, cfg check.Config) (*check.Report, error) {
	report, err := check.Run(ctx, cfg)
	var interrupted *check.InterruptedError
	if errors.As(err, &interrupted) {
		err = &stoppedError{interrupted}
	}
	return report, err
}

// stoppedError reports that a signal ended a check.
type stoppedError struct{ *check.InterruptedError }

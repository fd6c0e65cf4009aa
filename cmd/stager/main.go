// Command stager brings data to a training job and takes its results away: as an
// init container, as a sidecar, and on a workstation. "stager --help" tells the
// rest; package github.com/stager-dev/stager/stager has the daemon behind it.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// version is set by the linker.
var version = "dev"

// cli is everything that can be typed. Each flag has its environment twin, STAGER_
// and its name.
type cli struct {
	logging
	Prefetch prefetchCmd `cmd:"" help:"Copy a dataset, or one object, to a local folder: verified, and resumed after a kill."`
	Run      runCmd      `cmd:"" help:"Run a plan: feed a trainer through windows, save its outputs; as a sidecar, or around a command."`
	Push     pushCmd     `cmd:"" help:"Copy a file or folder to a store; with --commit as a checkpoint that exists whole or not at all."`
	Restore  restoreCmd  `cmd:"" help:"Bring back the newest good checkpoint."`
	Ls       lsCmd       `cmd:"" help:"List objects of a store."`
	Next     nextCmd     `cmd:"" help:"Take the next shard of an input and print its path."`
	Ack      ackCmd      `cmd:"" help:"Say that a shard is done with, so that its space is freed."`
	Nack     nackCmd     `cmd:"" help:"Give a shard back: it is delivered again."`
	Commit   commitCmd   `cmd:"" help:"Say that a checkpoint folder is complete, so that it is saved."`
	Drain    drainCmd    `cmd:"" help:"Say that the end is near: nothing more is fetched, outputs are saved."`
	Status   statusCmd   `cmd:"" help:"Show what stager is doing."`
	Version  versionCmd  `cmd:"" help:"Print the version."`
}

func main() {
	os.Exit(run(os.Args[1:]))
}

// run is main with an exit code.
func run(args []string) int {
	var c cli
	parser := kong.Must(&c, kong.Name("stager"), kong.Description(about), kong.DefaultEnvars("STAGER"),
		kong.UsageOnError(), kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	command, err := parser.Parse(args)
	if err != nil {
		return report(os.Stderr, &usageError{err})
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	command.BindTo(ctx, (*context.Context)(nil))
	err = command.Run(c.logging.open(os.Stderr))
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = &interruptedError{err}
	}
	return report(os.Stderr, err)
}

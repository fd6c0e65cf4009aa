// Command stager brings data to a training job and takes its results away: as an
// init container, as a sidecar, and on a workstation. "stager --help" tells the
// rest; package github.com/stager-dev/stager/stager has the daemon behind it.
package main

import (
	"context"
	"errors"
	"os"

	"github.com/alecthomas/kong"
)

var version = "dev" // set by the linker

func main() {
	spareMemory()
	limitMemory()
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
	ctx, stop := untilSignal()
	defer stop()
	command.BindTo(ctx, (*context.Context)(nil))
	err = command.Run(c.logging.open(os.Stderr))
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = &interruptedError{err}
	}
	return report(os.Stderr, err)
}

// Command stager brings data to a training job and takes its results away: as an
// init container, as a sidecar, and on a workstation. "stager --help" tells the
// rest; package github.com/stager-dev/stager/stager has the daemon behind it.
package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/alecthomas/kong"
)

var version = "dev" // set by the linker

func main() {
	spareMemory()
	limitMemory()
	os.Exit(run(argsOf(os.Args)))
}

// krmName is a name for the binary under which it is "stager krm": kustomize before 5.6
// passes no arguments to a function.
const krmName = "stager-krm"

// argsOf returns the arguments of the command line words, which begins with the name of
// the binary.
func argsOf(words []string) []string {
	if filepath.Base(words[0]) == krmName {
		return append([]string{"krm"}, words[1:]...)
	}
	return words[1:]
}

// run is main with an exit code.
func run(args []string) int {
	var c cli
	parser := kong.Must(&c, kong.Name("stager"), kong.Description(about), kong.DefaultEnvars("STAGER"),
		kong.UsageOnError(), kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.ExplicitGroups(groups))
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

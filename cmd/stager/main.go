// Command stager stages data for a training job and saves its results: as an init container, as a
// sidecar, or on a workstation. Start with "stager --help". Package
// github.com/stager-dev/stager/stager is the daemon.
package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/alecthomas/kong"
)

// Set by the linker. image is the image of a release with its registry, such as
// registry.example.com/stager:0.1.0; other builds have none.
var version, commit, image = "dev", "", ""

func main() {
	spareMemory()
	limitMemory()
	os.Exit(run(argsOf(os.Args)))
}

// krmName is a binary name that means "stager krm": kustomize before 5.6 passes no arguments to a
// function.
const krmName = "stager-krm"

// argsOf returns the arguments of a command line. words[0] is the name of the binary.
func argsOf(words []string) []string {
	switch {
	case filepath.Base(words[0]) == krmName:
		return append([]string{"krm"}, words[1:]...)
	case len(words) > 1 && words[1] == "help":
		return append(words[2:], "--help")
	}
	return words[1:]
}

// run is main, but returns an exit code.
func run(args []string) int {
	var c cli
	parser := kong.Must(&c, kong.Name("stager"), kong.Description(about), kong.DefaultEnvars("STAGER"),
		kong.UsageOnError(), kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.ExplicitGroups(groups), kong.Vars{"version": versionLine()})
	command, err := parser.Parse(args)
	if err = cmp.Or(c.misplacedFlag(parser.Model.Node), err); err != nil {
		return report(os.Stderr, &usageError{err})
	}
	ctx, stop := untilSignal()
	defer stop()
	command.BindTo(ctx, (*context.Context)(nil))
	command.Bind(parser)
	err = command.Run(c.logging.open(os.Stderr))
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = &interruptedError{err}
	}
	return report(os.Stderr, err)
}

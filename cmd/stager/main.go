// Command stager stages data for a training job and saves its results: as an init container, as a
// sidecar, or on a workstation. Start with "stager --help". Package
// github.com/stager-dev/stager/stager is the daemon.
package main

import (
	"cmp"
	"context"
	"errors"
	"os"

	"github.com/alecthomas/kong"
)

// Set by the linker. image is the image of a release with its registry, such as
// registry.example.com/stager:0.1.0; other builds have none.
var version, commit, image = "dev", "", ""

func main() {
	limitMemory()
	os.Exit(run(os.Args))
}

// run is main, but returns an exit code.
func run(words []string) int {
	collectAt(manifestGarbage) // the grammar is garbage soon, which need not be collected meanwhile
	var c cli
	var grammar any = &c
	name, described, logs := "stager", about, &c.logging
	if isPlugin(words[0]) {
		p := new(plugin)
		grammar, name, described, logs = p, pluginName, pluginAbout, &p.logging
	}
	parser := kong.Must(grammar, kong.Name(name), kong.Description(described), kong.DefaultEnvars("STAGER"),
		kong.UsageOnError(), kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.ExplicitGroups(groups), only(argsOf(words)), kong.Vars{"version": versionLine()})
	spareMemory()
	if topic, ok := askedForHelp(words); ok {
		if err := unknownTopic(parser.Model.Node, topic); err != nil {
			return report(os.Stderr, &usageError{err})
		}
	}
	command, err := parser.Parse(argsOf(words))
	if err = cmp.Or(c.misplacedFlag(parser.Model.Node), err); err != nil {
		return report(os.Stderr, &usageError{err})
	}
	ctx, stop := untilSignal()
	defer stop()
	command.BindTo(ctx, (*context.Context)(nil))
	command.Bind(parser)
	err = command.Run(logs.open(os.Stderr))
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = &interruptedError{err}
	}
	return report(os.Stderr, err)
}

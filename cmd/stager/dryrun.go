package main

import (
	"fmt"
	"strings"

	"github.com/stager-dev/stager/stager"
	"github.com/stager-dev/stager/stager/plan"
)

// rehearsing has the flag of every command that writes or removes something.
type rehearsing struct {
	DryRun bool `help:"Print what would be done, and change nothing."`
}

// describe prints what a run of a plan would do. The stores are not asked.
func describe(p *plan.StagePlan, child *stager.Child) {
	for _, in := range p.Spec.Inputs {
		for _, from := range in.From() {
			switch in.Mode {
			case plan.ModeWindow:
				fmt.Printf("would serve %s from %s in a window of %s at %s\n", in.Name, from.Source, in.Window.Size, in.Path)
			default:
				fmt.Printf("would prefetch %s from %s to %s\n", in.Name, from.Source, in.Path)
			}
		}
	}
	if child != nil {
		fmt.Println("would run " + printable(strings.Join(child.Command, " ")))
	}
	for _, out := range p.Spec.Outputs {
		fmt.Printf("would save %s from %s to %s\n", out.Name, out.Path, out.Destination)
	}
}

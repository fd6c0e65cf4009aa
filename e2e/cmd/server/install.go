package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/stager-dev/stager/e2e/cluster"
	"github.com/stager-dev/stager/e2e/servers"
)

// install sees to what servers need, and says which of them can run. It fails when one
// that -require names cannot.
func install(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("install", flag.ContinueOnError)
	list := flags.String("require", "", "fail when one of these, with commas between them, cannot run here")
	if err := flags.Parse(args); err != nil {
		return err
	}
	required := strings.FieldsFunc(*list, func(r rune) bool { return r == ',' })
	wanted := slices.Concat(flags.Args(), required)
	var names []string
	for i, name := range wanted {
		if !slices.Contains(wanted[:i], name) {
			names = append(names, name)
		}
	}
	why := make([]error, len(names))
	var all sync.WaitGroup
	under := make(chan struct{}, installsAtOnce)
	for i, name := range names {
		all.Go(func() {
			under <- struct{}{}
			defer func() { <-under }()
			why[i] = ready(ctx, name)
		})
	}
	all.Wait()
	var can, missing []string
	for i, name := range names {
		if err := why[i]; err != nil {
			fmt.Fprintf(os.Stderr, "%s cannot run here: %v\n", name, err)
			if slices.Contains(required, name) {
				missing = append(missing, name)
			}
			continue
		}
		can = append(can, name)
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s cannot run here, and must", strings.Join(missing, ", "))
	}
	fmt.Fprintln(out, strings.Join(can, ","))
	return nil
}

// installsAtOnce is how many servers are fetched at once, which mostly wait for other machines.
const installsAtOnce = 4

// ready sees to it that what tests know by this name can run.
func ready(ctx context.Context, name string) error {
	switch name {
	case "file":
		return nil // any machine has it
	case "apiserver", "cluster": // the test builds them
		return cluster.Possible()
	}
	return servers.Install(ctx, name, os.Stderr)
}

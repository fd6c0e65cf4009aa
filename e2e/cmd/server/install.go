package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/stager-dev/stager/e2e/servers"
)

// install sees to what servers need, and says which of them can run. With -all it
// fails when one cannot.
func install(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("install", flag.ContinueOnError)
	all := flags.Bool("all", false, "fail when one of them cannot run here")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var can []string
	var missing error
	for _, protocol := range flags.Args() {
		if err := servers.Install(ctx, protocol, os.Stderr); err != nil {
			err = fmt.Errorf("no server for %s: %w", protocol, err)
			fmt.Fprintln(os.Stderr, err)
			missing = errors.Join(missing, err)
			continue
		}
		can = append(can, protocol)
	}
	fmt.Fprintln(out, strings.Join(can, ","))
	if *all && missing != nil {
		return errors.New("not all that is wanted can run here")
	}
	return nil
}

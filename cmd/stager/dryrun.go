package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager"
	"github.com/stager-dev/stager/stager/api"
	"github.com/stager-dev/stager/stager/checkpoint"
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

// rehearse prints what commit would save, by the state of the running stager.
func (c commitCmd) rehearse(ctx context.Context) error {
	var snap api.Snapshot
	err := c.insist(ctx, func() error {
		_, _, err := c.call(ctx, http.MethodGet, "/v1/status", nil, nil, &snap)
		return err
	})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(snap.Outputs, func(s checkpoint.Status) bool { return s.Output == c.Output })
	if i < 0 {
		return &usageError{fmt.Errorf("output %q: no such name in the plan", c.Output)}
	}
	out := snap.Outputs[i]
	if below, err := filepath.Rel(out.Dir, c.Dir); err != nil || !filepath.IsLocal(below) {
		return &usageError{fmt.Errorf("%s is not in the directory of output %s, %s", printable(c.Dir), out.Output, printable(out.Dir))}
	}
	n, bytes, err := regularFiles(c.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && n == 0:
		return &usageError{fmt.Errorf("%s does not exist, or contains no files", printable(c.Dir))}
	case err != nil:
		return err
	}
	step := ""
	if c.Step != nil {
		step = fmt.Sprintf(" as step %d", *c.Step)
	}
	_, err = fmt.Printf("would commit %s (%s, %s)%s and save it to %s\n", printable(c.Dir), files(n), size(bytes), step, out.Destination)
	return err
}

// regularFiles counts the regular files at and below a path.
func regularFiles(path string) (n int, bytes int64, err error) {
	err = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n, bytes = n+1, bytes+info.Size()
		}
		return err
	})
	return n, bytes, err
}

// files formats a number of files.
func files(n int) string {
	if n == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", n)
}

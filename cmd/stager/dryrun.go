package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/stager-dev/stager/stager"
	"github.com/stager-dev/stager/stager/api"
	"github.com/stager-dev/stager/stager/checkpoint"
	"github.com/stager-dev/stager/stager/plan"
)

// rehearsing has the flag of every command that writes or removes something.
type rehearsing struct {
	DryRun bool `help:"Print what would be done, and change nothing."`
}

// intended is one thing that a run of a plan would do.
type intended struct {
	Does    string   `json:"does"`              // one of serve, prefetch, run and save
	Name    string   `json:"name,omitempty"`    // of the input or output
	From    string   `json:"from,omitempty"`    // URL of an input, or directory of an output
	To      string   `json:"to,omitempty"`      // directory of an input, or URL of an output
	Bytes   int64    `json:"bytes,omitempty"`   // size of the window
	Command []string `json:"command,omitempty"` // what is run
}

func (i intended) String() string {
	switch i.Does {
	case "run":
		return "would run " + printable(strings.Join(i.Command, " "))
	case "serve":
		return fmt.Sprintf("would serve %s from %s in a window of %s at %s", i.Name, i.From, plan.Bytes(i.Bytes), i.To)
	}
	return fmt.Sprintf("would %s %s from %s to %s", i.Does, i.Name, i.From, i.To)
}

// describe prints what a run of a plan would do. The stores are not asked.
func (c runCmd) describe(p *plan.StagePlan, child *stager.Child) error {
	var all []intended
	for _, in := range p.Spec.Inputs {
		for _, from := range in.From() {
			i := intended{Does: "prefetch", Name: in.Name, From: from.Source, To: in.Path}
			if in.Mode == plan.ModeWindow {
				i.Does, i.Bytes = "serve", int64(in.Window.Size)
			}
			all = append(all, i)
		}
	}
	if child != nil {
		all = append(all, intended{Does: "run", Command: child.Command})
	}
	for _, out := range p.Spec.Outputs {
		all = append(all, intended{Does: "save", Name: out.Name, From: out.Path, To: out.Destination})
	}
	for _, i := range all {
		var err error
		if c.structured() {
			err = c.item(os.Stdout, i)
		} else {
			_, err = fmt.Println(i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// measured is what a check or a measurement would do.
type measured struct {
	Does   string `json:"does"` // check or measure
	Store  string `json:"store"`
	Writes bool   `json:"writes"`        // to a scratch directory in the store
	Dir    string `json:"dir,omitempty"` // of the local disk that is measured
}

// intend prints what a check or a measurement would do.
func (s shape) intend(m measured) error {
	if s.structured() {
		return s.item(os.Stdout, m)
	}
	how := "by reading objects below it, and write nothing to it"
	if m.Writes {
		how = "in a scratch directory below it, and remove that"
	}
	_, err := fmt.Printf("would %s %s %s\n", m.Does, m.Store, how)
	if m.Dir != "" && err == nil {
		_, err = fmt.Printf("would measure the disk of %s in a scratch directory, and remove that\n", printable(m.Dir))
	}
	return err
}

// rehearse prints what drain would do, by the state of the running stager.
func (c drainCmd) rehearse(ctx context.Context) error {
	var snap api.Snapshot
	if _, _, err := c.call(ctx, http.MethodGet, "/v1/status", nil, nil, &snap); err != nil {
		return err
	}
	if snap.Phase == api.Drained || snap.Phase == api.Ended {
		_, err := fmt.Println("would do nothing: everything is drained already")
		return err
	}
	for _, in := range snap.Inputs {
		if _, err := fmt.Printf("would stop fetching %s from %s\n", in.Name, in.Source); err != nil {
			return err
		}
	}
	for _, out := range snap.Outputs {
		if _, err := fmt.Printf("would save what is complete of %s in %s to %s\n", out.Output, printable(out.Dir), out.Destination); err != nil {
			return err
		}
	}
	return nil
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
func files(n int) string { return english.Plural(n, "file", "") }

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/check"
	"github.com/stager-dev/stager/stager/plan"
)

// checkedPlace is the report of a source or destination of a plan.
type checkedPlace struct {
	Input  string        `json:"input,omitempty"`  // name of the input that reads here
	Output string        `json:"output,omitempty"` // name of the output that is saved here
	URL    string        `json:"url"`              // as in the plan, with its placeholders replaced
	Report *check.Report `json:"report,omitempty"` // what "stager check URL" prints
	Error  string        `json:"error,omitempty"`  // why there is no report
	secret string
}

// String returns the heading of the report.
func (p checkedPlace) String() string {
	if p.Output != "" {
		return fmt.Sprintf("output %s, to %s", p.Output, p.URL)
	}
	return fmt.Sprintf("input %s, from %s", p.Input, p.URL)
}

// all checks each source and destination of the plan. It goes on after one that fails, and returns
// all failures.
func (c checkCmd) all(ctx context.Context, log *slog.Logger, to *console) error {
	if c.URL != "" || c.File == "" && c.PlanYAML == "" {
		return &usageError{errors.New("--all needs a plan, by -f or --plan-yaml, and no URL")}
	}
	p, _, err := c.readPlan()
	if err != nil {
		return err
	}
	places := placesOf(p)
	var failed []error
	for i := range places {
		at := &places[i]
		if i > 0 && !c.structured() && !c.DryRun {
			fmt.Println()
		}
		if !c.structured() {
			fmt.Println(at)
		}
		report, err := c.existing(ctx, *at, log, to)
		if ctx.Err() != nil {
			return err
		}
		if c.ReadOnly && at.Output != "" && errors.Is(err, check.ErrEmpty) { // as before the first run
			at.Error = "it can be listed, and there is nothing to read yet"
			if !c.structured() {
				fmt.Println(at.Error)
			}
			continue
		}
		if err == nil && report != nil {
			at.Report, err = report, report.Err()
			if !c.structured() {
				failed = append(failed, printReport(os.Stdout, report))
			}
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", at, err)
			if at.Report == nil {
				at.Error = err.Error()
			}
		}
		failed = append(failed, err)
	}
	if c.structured() && !c.DryRun {
		failed = append(failed, c.value(places))
	}
	return errors.Join(failed...)
}

// placesOf returns the sources and destinations of a plan, each once.
func placesOf(p *plan.StagePlan) (places []checkedPlace) {
	seen := make(map[checkedPlace]bool)
	add := func(place checkedPlace) {
		key := checkedPlace{URL: place.URL, secret: place.secret}
		if place.Output != "" {
			key.Output = "any"
		}
		if !seen[key] {
			seen[key] = true
			places = append(places, place)
		}
	}
	for _, in := range p.Spec.Inputs {
		for _, from := range in.From() {
			add(checkedPlace{Input: in.Name, URL: from.Source, secret: from.Credentials.Secret})
		}
	}
	for _, out := range p.Spec.Outputs {
		add(checkedPlace{Output: out.Name, URL: out.Destination, secret: out.Credentials.Secret})
	}
	return places
}

// existing checks a place. A destination that the first upload will create is checked at the nearest
// directory above that exists.
func (c checkCmd) existing(ctx context.Context, place checkedPlace, log *slog.Logger, to *console) (*check.Report, error) {
	for {
		report, err := c.at(place).store(ctx, log, to)
		above := directoryAbove(place.URL)
		if place.Output == "" || above == "" || !backends.Empty(err) {
			return report, err
		}
		place.URL = above
	}
}

// directoryAbove returns the URL without its last directory; "" if it has none.
func directoryAbove(location string) string {
	at, err := url.Parse(location)
	if err != nil || strings.Trim(at.Path, "/") == "" {
		return ""
	}
	at.Path, at.RawPath = strings.TrimSuffix(path.Dir(strings.TrimSuffix(at.Path, "/")), "/")+"/", ""
	return at.String()
}

// at returns the check of one place, with its credentials. If the Secret is not mounted, they come
// from the environment, as in "stager run".
func (c checkCmd) at(place checkedPlace) checkCmd {
	one := c
	one.URL, one.ReadOnly = place.URL, c.ReadOnly || place.Output == ""
	directory := filepath.Join(cmp.Or(c.Secrets, plan.SecretsDir), place.secret)
	one.Secrets = ""
	if _, err := os.Stat(directory); place.secret != "" && err == nil {
		one.Secrets = directory
	}
	return one
}

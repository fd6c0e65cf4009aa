package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/stager-dev/stager/stager/check"
	"github.com/stager-dev/stager/stager/plan"
)

// plan checks the destinations that several nodes share.
func (c checkCmd) plan(ctx context.Context, log *slog.Logger) error {
	p, node, err := c.readPlan()
	if err != nil {
		return err
	}
	var found []*check.Together
	var broken []error
	for _, out := range p.Spec.Outputs {
		if out.Nodes != plan.NodesAll {
			continue
		}
		if c.DryRun {
			if err := c.intend(measured{Does: "check", Store: out.Destination, Writes: true}); err != nil {
				return err
			}
			found = append(found, nil)
			continue
		}
		t, err := c.destination(ctx, out, log)
		if err != nil {
			return err
		}
		t.Output, t.Nodes = out.Name, node.Count
		found, broken = append(found, t), append(broken, t.Err())
	}
	if len(found) == 0 {
		return &usageError{fmt.Errorf("no output of %s is saved by several nodes (nodes: all); give a URL to check a store", c.File)}
	}
	switch {
	case c.DryRun:
		return nil
	case c.structured():
		err = c.value(found)
	default:
		printTogether(found)
	}
	return errors.Join(append(broken, err)...)
}

// readPlan returns the plan as this node would run it.
func (c checkCmd) readPlan() (*plan.StagePlan, plan.Shard, error) {
	from := runCmd{File: c.File, PlanYAML: c.PlanYAML}
	node := plan.Shard{Index: 0, Count: 1}
	text, err := from.readPlan()
	if err != nil {
		return nil, node, err
	}
	p, err := parsePlan(text)
	if err != nil {
		return nil, node, fmt.Errorf("invalid plan %s:\n%w", from.planName(), err)
	}
	if own, _, err := p.Spec.Shard.Resolve(os.Getenv); err == nil { // else the plan will run elsewhere
		node = own
	}
	p, err = p.Expand(p.Vars(node, time.Now(), os.Getenv))
	return p, node, err
}

// destination tests the destination of one output.
func (c checkCmd) destination(ctx context.Context, out plan.Output, log *slog.Logger) (*check.Together, error) {
	at := c.storing
	if secret := out.Credentials.Secret; secret != "" && at.Secrets != "" {
		at.Secrets = filepath.Join(at.Secrets, secret)
	}
	store, err := at.open(ctx, out.Destination, log)
	if err != nil {
		return nil, err
	}
	defer store.Close() // all writes are removed already
	return check.Several(ctx, store)
}

func printTogether(found []*check.Together) {
	for _, t := range found {
		fmt.Printf("output %s, saved by all nodes together at %s\n", t.Output, t.Store)
		fmt.Printf("  creates only if absent       %s\n", t.CreateWords())
		fmt.Printf("  replaces one version only    %s\n", t.GuardWords())
		for _, text := range t.Weaker {
			paragraph(os.Stdout, "  weaker                       ", text)
		}
		for _, text := range t.Broken {
			paragraph(os.Stdout, "  BROKEN                       ", text)
		}
	}
	if id, from := plan.JobIdentity(os.Getenv); id != "" {
		fmt.Printf("job %s, from %s\n", id, from)
		return
	}
	fmt.Println("no identity of the job here; in a pod inject sets STAGER_JOB_UID where the kind has one")
}

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/stager-dev/stager/stager/jobspec"
)

type kubectlStatusCmd struct {
	ofPods
	shape
}

// Help returns the detailed help.
func (kubectlStatusCmd) Help() string {
	return `Runs "stager status" in the pod's container of stager and ends with its exit code. Ends with 64 or 65 if the pod has none, 66 if there is no such pod, 69 if it has ended, and 75 if it has not started.

    kubectl stager status train-0-x7k2p
    kubectl stager status job/train -n research
    kubectl stager status train-0-x7k2p -o json | jq .phase`
}

func (c kubectlStatusCmd) Run(ctx context.Context) error {
	return c.each(ctx, c.structured(), func(p jobspec.RunningPod) error {
		return c.exec(ctx, p, func(jobspec.RunningContainer) []string { return []string{"status", "--output=" + c.Output} })
	})
}

type kubectlLogsCmd struct {
	ofPods
	Follow   bool          `short:"f" env:"-" help:"Print new lines until the container ends."`
	Previous bool          `short:"p" env:"-" help:"Logs of the containers before their last restart."`
	Tail     int           `env:"-" help:"Only this many of the last lines; -1 prints all." default:"-1"`
	Since    time.Duration `env:"-" help:"Only lines of this last duration." placeholder:"DURATION"`
}

// Help returns the detailed help.
func (kubectlLogsCmd) Help() string {
	return `Prints the logs of stager-prefetch and then of stager, each under its name if there are two. A pod keeps them after its end.

    kubectl stager logs train-0-x7k2p
    kubectl stager logs -f train-0-x7k2p
    kubectl stager logs -l app=train --tail 20
    kubectl stager logs -p train-0-x7k2p -c stager`
}

func (c kubectlLogsCmd) Run(ctx context.Context) error {
	err := c.each(ctx, false, func(p jobspec.RunningPod) error { return c.logs(ctx, p) })
	if c.Follow && ctx.Err() != nil {
		return nil // whoever follows logs ends that by a signal
	}
	return err
}

// logs prints the logs of a pod.
func (c kubectlLogsCmd) logs(ctx context.Context, p jobspec.RunningPod) error {
	all, err := c.containers(p)
	if err != nil {
		return err
	}
	var logged []jobspec.RunningContainer
	for _, has := range all {
		if has.Logged && (!c.Previous || has.Restarts > 0) {
			logged = append(logged, has)
		}
	}
	switch {
	case len(logged) == 0 && c.Previous:
		return &kubectlError{fmt.Sprintf("no container of stager in pod %s was restarted; omit --previous", p.Name), exitNoInput}
	case len(logged) == 0:
		return idle(p, all)
	}
	for _, has := range logged {
		if len(logged) > 1 {
			fmt.Printf("==> %s <==\n", has.Name)
		}
		if err := c.pass(ctx, "logs", append([]string{p.Name, "--container=" + has.Name}, c.flags()...)...); err != nil {
			return err
		}
	}
	return nil
}

// flags returns those of "kubectl logs".
func (c kubectlLogsCmd) flags() (flags []string) {
	if c.Follow {
		flags = append(flags, "--follow")
	}
	if c.Previous {
		flags = append(flags, "--previous")
	}
	if c.Tail >= 0 {
		flags = append(flags, "--tail="+strconv.Itoa(c.Tail))
	}
	if c.Since > 0 {
		flags = append(flags, "--since="+c.Since.String())
	}
	return flags
}

type kubectlCheckCmd struct {
	ofPods
	shape
	rehearsing
	ReadOnly bool `env:"-" help:"Do not write; check what reading can prove."`
}

// checkConnections limits the requests of a check that runs next to the stager of a job, with which
// it shares the container's memory.
const checkConnections = 4

// Help returns the detailed help.
func (kubectlCheckCmd) Help() string {
	return `Runs "stager check --all" in the pod's container of stager: with its plan, credentials, network and limits. Sources are only read. In each destination it writes to a scratch directory and removes it. Uses 4 connections, because the job's stager is at work, too. Ends with the exit code of the check.

    kubectl stager check train-0-x7k2p
    kubectl stager check train-0-x7k2p --read-only -o json`
}

func (c kubectlCheckCmd) Run(ctx context.Context) error {
	return c.each(ctx, c.structured(), func(p jobspec.RunningPod) error {
		return c.exec(ctx, p, func(in jobspec.RunningContainer) []string {
			args := []string{"check", "--all", "--connections=" + strconv.Itoa(checkConnections), "--output=" + c.Output}
			if in.PlanFile != "" {
				args = append(args, "--file="+in.PlanFile)
			}
			if c.ReadOnly {
				args = append(args, "--read-only")
			}
			if c.DryRun {
				args = append(args, "--dry-run")
			}
			return args
		})
	})
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec"
)

// ofPods has the argument and flags that select pods and a container in them.
type ofPods struct {
	inCluster
	Pod       string `arg:"" optional:"" help:"Name of a pod, or job/NAME for all pods of a Job."`
	Selector  string `short:"l" env:"-" help:"Labels of the pods, instead of a name, such as app=train." placeholder:"LABELS"`
	Container string `short:"c" env:"-" help:"Container that runs stager. Default: stager-prefetch while it runs, else stager." placeholder:"NAME"`
}

// query returns the arguments of "kubectl get" for the pods.
func (c ofPods) query() ([]string, error) {
	switch {
	case c.Pod == "" && c.Selector == "":
		return nil, &usageError{errors.New("name a pod or job/NAME, or select pods with -l")}
	case c.Pod != "" && c.Selector != "":
		return nil, &usageError{errors.New("use a name or -l, not both")}
	case c.Selector != "":
		return []string{"pods", "--selector=" + c.Selector}, nil
	}
	kind, name, typed := strings.Cut(c.Pod, "/")
	if !typed {
		kind, name = "pod", c.Pod
	}
	switch {
	case name == "" || strings.Contains(name, "/"):
	case slices.Contains([]string{"pod", "pods", "po"}, kind):
		return []string{"pod", name}, nil
	case slices.Contains([]string{"job", "jobs", "job.batch", "jobs.batch"}, kind):
		return []string{"pods", "--selector=batch.kubernetes.io/job-name=" + name}, nil
	}
	return nil, &usageError{fmt.Errorf("%q is neither a pod nor job/NAME; select the pods of other kinds with -l", c.Pod)}
}

// find asks kubectl for the pods.
func (c ofPods) find(ctx context.Context) ([]jobspec.RunningPod, error) {
	query, err := c.query()
	if err != nil {
		return nil, err
	}
	text, err := c.read(ctx, "get", append(query, "--output=json")...)
	if err != nil {
		return nil, err
	}
	pods, err := jobspec.ReadPods(text)
	if err == nil && len(pods) == 0 {
		return nil, &kubectlError{fmt.Sprintf("%s has no pods; see kubectl get pods", strings.TrimPrefix(query[1], "--selector=")), exitNoInput}
	}
	return pods, err
}

// each does work for every pod that is selected, each under a heading if there are several. It ends
// with the first exit code other than 0. Only output for people can be of several pods.
func (c ofPods) each(ctx context.Context, structured bool, work func(jobspec.RunningPod) error) error {
	pods, err := c.find(ctx)
	switch {
	case err != nil:
		return err
	case len(pods) == 1:
		return work(pods[0])
	case structured:
		var names []string
		for _, p := range pods {
			names = append(names, p.Name)
		}
		return &usageError{fmt.Errorf("-o is for one pod, and there are %d; name one of %s", len(pods), strings.Join(names, ", "))}
	}
	code := exitOK
	for i, p := range pods {
		if i > 0 {
			fmt.Println()
		}
		fmt.Println("pod/" + p.Name)
		err := work(p)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if got := report(os.Stderr, err); code == exitOK {
			code = got
		}
	}
	if code != exitOK {
		return exitError(code)
	}
	return nil
}

// containers returns the containers of stager in a pod, or the one that is named.
func (c ofPods) containers(p jobspec.RunningPod) ([]jobspec.RunningContainer, error) {
	switch {
	case c.Container == "" && len(p.Containers) > 0:
		return p.Containers, nil
	case c.Container != "":
		for _, has := range p.Containers {
			if has.Name == c.Container {
				return []jobspec.RunningContainer{has}, nil
			}
		}
		var names []string
		for _, has := range p.Containers {
			names = append(names, has.Name)
		}
		if len(names) > 0 {
			return nil, &usageError{fmt.Errorf("container %s of pod %s does not run stager; use %s", c.Container, p.Name, strings.Join(names, " or "))}
		}
	case p.Requested:
		return nil, &kubectlError{fmt.Sprintf("pod %s requests data and was created without stager; install the webhook or create it from the output of stager inject, because a pod cannot be injected later", p.Name), exitData}
	}
	return nil, &kubectlError{fmt.Sprintf("pod %s has no container of stager; add it to the pod's Job or other controller with stager inject", p.Name), exitUsage}
}

// exec runs a command of the stager that responds in a pod.
func (c ofPods) exec(ctx context.Context, p jobspec.RunningPod, args func(jobspec.RunningContainer) []string) error {
	all, err := c.containers(p)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(all, func(has jobspec.RunningContainer) bool { return has.Running })
	if at < 0 {
		return idle(p, all)
	}
	in := all[at]
	return c.pass(ctx, "exec", append([]string{p.Name, "--container=" + in.Name, "--", in.Program}, args(in)...)...)
}

// idle returns why no stager responds in a pod.
func idle(p jobspec.RunningPod, containers []jobspec.RunningContainer) error {
	because := func(reason string) string {
		if reason == "" {
			return ""
		}
		return ": " + strings.TrimSuffix(reason, ".")
	}
	if p.Phase == "Succeeded" || p.Phase == "Failed" {
		return &kubectlError{fmt.Sprintf("pod %s has ended (%s%s); kubectl stager logs %s prints what its stager logged", p.Name, p.Phase, because(p.Reason), p.Name), exitUnavailable}
	}
	for _, c := range containers {
		if c.Reason != "" {
			return &kubectlError{fmt.Sprintf("container %s of pod %s does not run%s; see kubectl stager logs %s, and kubectl describe pod %s", c.Name, p.Name, because(c.Reason), p.Name, p.Name), exitTryAgain}
		}
	}
	return &kubectlError{fmt.Sprintf("pod %s is %s, and its stager has not started%s; try again, or see kubectl describe pod %s", p.Name, p.Phase, because(p.Reason), p.Name), exitTryAgain}
}

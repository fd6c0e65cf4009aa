package jobspec

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// RunningPod is a pod of a cluster: what runs stager in it, and in which state that is.
type RunningPod struct {
	Name      string
	Phase     string // Pending, Running, Succeeded, Failed or Unknown
	Reason    string // why it is in this phase, as Kubernetes reports it; "": unknown
	Requested bool   // its annotations or its label request data
	// Containers are those that run stager: the prefetch container, for which the job waits, the
	// sidecar, and the job's own container if stager runs in it.
	Containers []RunningContainer
}

// RunningContainer is a container that runs stager.
type RunningContainer struct {
	Name     string
	Program  string // path of stager's binary in it
	PlanFile string // file of its plan; "": the plan is in its environment
	Running  bool
	Logged   bool   // it has run at least once
	Restarts int    // how often it was restarted
	Reason   string // why it does not run; "": it has not been created
}

// imageProgram is the path of the binary in stager's image.
const imageProgram = "/stager"

// podObject has the fields of a Pod, or of a List of Pods, that ReadPods reads.
type podObject struct {
	Kind     string
	Items    []podObject
	Metadata struct {
		Name                string
		Annotations, Labels map[string]string
	}
	Spec struct {
		InitContainers, Containers []podContainer
	}
	Status struct {
		Phase, Reason, Message                   string
		Conditions                               []struct{ Type, Status, Message string }
		InitContainerStatuses, ContainerStatuses []podContainerStatus
	}
}

type podContainer struct {
	Name          string
	Command, Args []string
}

type podContainerStatus struct {
	Name         string
	RestartCount int
	State        podContainerState
}

type podContainerState struct {
	Waiting    *struct{ Reason, Message string }
	Running    *struct{}
	Terminated *struct{ ExitCode int }
}

// ReadPods reads a Pod, or a List of Pods, as "kubectl get -o json" prints them.
func ReadPods(text []byte) ([]RunningPod, error) {
	var o podObject
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, fmt.Errorf("reading a pod of the cluster: %w", err)
	}
	switch {
	case o.Kind == "Pod":
		return []RunningPod{o.running()}, nil
	case !strings.HasSuffix(o.Kind, "List"):
		return nil, fmt.Errorf("reading a pod of the cluster: got the kind %q", o.Kind)
	}
	pods := make([]RunningPod, len(o.Items))
	for i := range o.Items {
		pods[i] = o.Items[i].running()
	}
	return pods, nil
}

// running returns what a Pod has of stager.
func (o *podObject) running() RunningPod {
	p := RunningPod{Name: o.Metadata.Name, Phase: o.Status.Phase, Reason: o.reason()}
	p.Requested = o.Metadata.Labels[LabelInject] == "true"
	for key := range o.Metadata.Annotations {
		p.Requested = p.Requested || strings.HasPrefix(key, prefix)
	}
	all := slices.Concat(o.Spec.InitContainers, o.Spec.Containers)
	states := slices.Concat(o.Status.InitContainerStatuses, o.Status.ContainerStatuses)
	for _, wanted := range []func(podContainer) bool{
		func(c podContainer) bool { return c.Name == ContainerPrefetch },
		func(c podContainer) bool { return c.Name == ContainerSidecar },
		podContainer.runsInside,
	} {
		for _, c := range all {
			if wanted(c) {
				p.Containers = append(p.Containers, c.running(states))
			}
		}
	}
	return p
}

// reason returns why the pod is in its phase.
func (o *podObject) reason() string {
	for _, c := range o.Status.Conditions {
		if c.Type == "PodScheduled" && c.Status == "False" && o.Status.Phase == "Pending" {
			return c.Message
		}
	}
	return because(o.Status.Reason, o.Status.Message)
}

// runsInside reports whether stager is the parent of the job's command, without a sidecar.
func (c podContainer) runsInside() bool {
	return len(c.Command) > 1 && c.Command[0] == binDir+"/stager" && c.Command[1] == "run"
}

// running returns the container with its state.
func (c podContainer) running(states []podContainerStatus) RunningContainer {
	r := RunningContainer{Name: c.Name, Program: imageProgram, PlanFile: planFile(c.Args)}
	if len(c.Command) > 0 && strings.HasSuffix(c.Command[0], imageProgram) {
		r.Program, r.PlanFile = c.Command[0], planFile(slices.Concat(c.Command, c.Args))
	}
	i := slices.IndexFunc(states, func(s podContainerStatus) bool { return s.Name == c.Name })
	if i < 0 {
		return r
	}
	state := states[i].State
	r.Restarts, r.Running = states[i].RestartCount, state.Running != nil
	r.Logged = r.Running || state.Terminated != nil || r.Restarts > 0
	switch {
	case state.Waiting != nil:
		r.Reason = because(state.Waiting.Reason, state.Waiting.Message)
	case state.Terminated != nil:
		r.Reason = fmt.Sprintf("ended with exit code %d", state.Terminated.ExitCode)
	}
	return r
}

// planFile returns the value of -f in the arguments of "stager run", up to the job's command.
func planFile(args []string) string {
	for i, arg := range args {
		value, joined := strings.CutPrefix(arg, "--file=")
		switch {
		case arg == "--":
			return ""
		case joined:
			return value
		case (arg == "-f" || arg == "--file") && i+1 < len(args):
			return args[i+1]
		}
	}
	return ""
}

// because returns a reason and its message.
func because(reason, message string) string {
	if reason == "" || message == "" {
		return reason + message
	}
	return reason + ": " + message
}

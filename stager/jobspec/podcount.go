package jobspec

import (
	"fmt"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// Count is the number of pods of a template.
type Count struct {
	Total  int    // over the lifetime of the object, without retries; 0: unknown
	AtOnce int    // concurrent pods; 0: unknown
	Why    string // why it is unknown, or what the number leaves out; or ""
}

// count returns the number of pods of a template from its ancestors. All Kubernetes kinds and those
// of its ecosystem use one of a few forms: replicas, completions and parallelism, taskNumber, or
// the size of a group.
func (t *template) count() Count {
	c := Count{Total: 1, AtOnce: 1}
	switch t.object.kind {
	case "DaemonSet":
		return Count{Why: "a DaemonSet has one pod on each node"}
	case "CronJob":
		c.Why = "of each run"
	case "TrainingRuntime", "ClusterTrainingRuntime":
		return Count{Why: "a TrainJob says how many nodes its runtime has"}
	}
	if t.object.group() == "serving.knative.dev" || t.object.group() == "serving.kserve.io" {
		return Count{Why: fmt.Sprintf("%s has as many pods as it has requests", article(t.object.kind))}
	}
	inside := t.chain[len(t.object.around):]
	for i := len(inside) - 2; i >= 0; i-- {
		n := inside[i]
		if n.Kind != yamledit.Mapping {
			continue
		}
		times, atOnce := 1, 1
		switch {
		case n.Get("parallelism") != nil || n.Get("completions") != nil:
			parallel := number(n, "parallelism", 1)
			times = number(n, "completions", parallel)
			atOnce = min(parallel, times)
		case n.Get("replicas") != nil:
			times = number(n, "replicas", 1)
			atOnce = times
		case n.Get("instances") != nil: // Spark executors
			times = number(n, "instances", 1)
			atOnce = times
		case n.Get("taskNumber") != nil:
			times = number(n, "taskNumber", 1)
			atOnce = times
		case n.Get("size") != nil && n.Get("workerTemplate") != nil: // LeaderWorkerSet
			times = t.inGroup(n)
			atOnce = times
		}
		c.Total, c.AtOnce = c.Total*times, c.AtOnce*atOnce
	}
	if t.known() == nil && len(inside) > 1 && c.Total == 1 && !t.saysHowMany() {
		c.Why = fmt.Sprintf("the number of pods of %s is unknown; assuming one", article(t.object.kind))
	}
	return c
}

// inGroup returns how many of a group's pods have this template. The leader has a template of its
// own, or is the first worker.
func (t *template) inGroup(group *yamledit.Node) int {
	size := number(group, "size", 1)
	switch {
	case len(t.path) > 0 && t.path[len(t.path)-1] == "leaderTemplate":
		return 1
	case group.Get("leaderTemplate") != nil:
		return size - 1
	}
	return size
}

// saysHowMany reports whether any ancestor defines a number of pods.
func (t *template) saysHowMany() bool {
	for _, n := range t.chain[len(t.object.around):] {
		for _, key := range []string{"replicas", "parallelism", "completions", "taskNumber"} {
			if n.Kind == yamledit.Mapping && n.Get(key) != nil {
				return true
			}
		}
	}
	// The default of these kinds is one.
	switch t.object.kind {
	case "Deployment", "StatefulSet", "ReplicaSet", "ReplicationController":
		return true
	}
	return false
}

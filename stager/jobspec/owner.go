package jobspec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
	"github.com/stager-dev/stager/stager/plan"
)

const (
	kubeflowRole   = "training.kubeflow.org/replica-type"
	jobSetReplicas = "jobset.sigs.k8s.io/replicatedjob-replicas"
)

// OneOfSeveral reports whether a pod with these labels has an index, so that it is one of
// several pods that the object which created it counts.
func OneOfSeveral(labels map[string]string) bool {
	return labels[indexLabel] != "" || labels[kubeflowIndex] != ""
}

// learn adds what the object that created a pod knows of it: how many pods there are, and
// which one this is where the pod's own index is not that. An owner that does not tell
// leaves the facts as they are.
func (f *jobIdentity) learn(owner []byte, pod *template) {
	d := yamledit.Split(owner)[0]
	if yamledit.Parse(d) != nil {
		return
	}
	for _, o := range objectsIn(d) {
		o.findTemplates("")
		i := slices.IndexFunc(o.templates, func(t *template) bool { return t.makes(pod) })
		if i < 0 {
			continue
		}
		labels := pod.node.Get("metadata", "labels")
		switch its := o.templates[i].job(); {
		case labels.Get(jobSetName) != nil:
			f.learnOfJobSet(o.root, labels)
		case its.count != "" || its.index == (source{}) && its.role != "":
			// Of a role that takes all of the data for itself the pods need no index.
			f.role, f.count, f.helpers, f.caution = its.role, its.count, its.helpers, its.caution
			f.index = orIndex(its.index, f.index, its.count)
		}
	}
}

// orIndex is the index that an owner knows, or that of the pod, where there are several.
func orIndex(owners, pods source, count string) source {
	if owners != (source{}) || count == "" {
		return owners
	}
	return pods
}

// makes reports whether pods such as this one come from the template of its owner.
func (t *template) makes(pod *template) bool {
	role := pod.node.Get("metadata", "labels").Get(kubeflowRole)
	return role == nil || len(t.path) > 1 && strings.EqualFold(t.path[len(t.path)-2], role.Text())
}

// learnOfJobSet counts the pods of one of the Jobs of a JobSet, and those of its likes.
func (f *jobIdentity) learnOfJobSet(job, labels *yamledit.Node) {
	pods := number(job.Get("spec"), "completions", number(job.Get("spec"), "parallelism", 1))
	jobs := 1
	if replicas := labels.Get(jobSetReplicas); replicas != nil {
		if n, err := strconv.Atoi(replicas.Text()); err == nil {
			jobs = n
		}
	}
	f.count, f.caution = strconv.Itoa(jobs*pods), ""
	f.index, f.helpers = jobSetPlace(jobs, pods)
	if f.index == (source{}) {
		f.index = label(indexLabel)
	}
}

// jobSetPlace is the index of a pod among all pods of a JobSet's replicated Job; it is
// empty where that is the pod's own.
func jobSetPlace(jobs, pods int) (index source, helpers []variable) {
	switch {
	case jobs > 1 && pods > 1:
		return literalSource(fmt.Sprintf("$(STAGER_JOB_INDEX)*%d+$(STAGER_POD_INDEX)", pods)),
			[]variable{{"STAGER_JOB_INDEX", label(jobSetIndex)}, {"STAGER_POD_INDEX", label(indexLabel)}}
	case jobs > 1:
		return label(jobSetIndex), nil
	}
	return source{}, nil
}

// divisible refuses more pods than the data can be divided among: each of them would end with
// code 78.
func (p *pod) divisible(count string) {
	n, _ := strconv.Atoi(count)
	if n > plan.Stripes && p.req.plan.Spec.Shard.By == plan.ShardAuto {
		refuse(nil, "%d pods share the data, and it can be divided among %d at most; write shard: {by: none} into the plan if each takes all of it, or run fewer pods", n, plan.Stripes)
	}
}

// countless refuses a created pod that is one of several, of a number that nobody knows:
// its plan divides data, or names places, by that number, and it would end with 78 for
// certain.
func (p *pod) countless() {
	looked := p.opts.Owner != nil || p.opts.NoOwner != ""
	if !p.opts.Admission || !looked || p.job.index == (source{}) || p.req.plan.Spec.Shard.By != plan.ShardAuto {
		return
	}
	why := ""
	if p.opts.NoOwner != "" {
		why = ": " + p.opts.NoOwner
	}
	refuse(nil, "the pod is one of several, and of how many is not known%s; write their number as the annotation %s into the pod template, or shard: {by: none} into the plan if each takes all of the data", why, AnnotationCount)
}

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

// OneOfSeveral reports whether a pod with these labels has an index. The object that created such a
// pod defines the number of pods.
func OneOfSeveral(labels map[string]string) bool {
	return labels[indexLabel] != "" || labels[kubeflowIndex] != ""
}

// learn adds what the owner of a pod defines: the number of pods, and the pod's index if it differs
// from the index of the pod itself. If the owner defines neither, f stays as it is.
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
			// The pods of a role that does not divide its data need no index.
			f.role, f.count, f.helpers, f.caution = its.role, its.count, its.helpers, its.caution
			f.index = orIndex(its.index, f.index, its.count)
		}
	}
}

// orIndex returns the index from the owner, or that of the pod if the owner has none and there are
// several pods.
func orIndex(owners, pods source, count string) source {
	if owners != (source{}) || count == "" {
		return owners
	}
	return pods
}

// makes reports whether pod was created from the owner's template t.
func (t *template) makes(pod *template) bool {
	role := pod.node.Get("metadata", "labels").Get(kubeflowRole)
	return role == nil || len(t.path) > 1 && strings.EqualFold(t.path[len(t.path)-2], role.Text())
}

// learnOfJobSet computes the number of pods over all Jobs of a JobSet's replicated Job.
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

// jobSetPlace returns the index of a pod among all pods of a JobSet's replicated Job. It returns an
// empty source if that is the pod's own index.
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

// divisible refuses more pods than there are stripes: stager would exit with code 78 in each of
// them.
func (p *pod) divisible(count string) {
	n, _ := strconv.Atoi(count)
	if n > plan.Stripes && p.req.plan.Spec.Shard.By == plan.ShardAuto {
		refuse(nil, "%d pods share the data, and it can be divided among %d at most; write shard: {by: none} into the plan if each pod needs all of it, or run fewer pods", n, plan.Stripes)
	}
}

// countless refuses a created pod whose number of pods is unknown if its plan divides data, or
// names directories, by that number. Stager would certainly exit with code 78.
func (p *pod) countless() {
	looked := p.opts.Owner != nil || p.opts.NoOwner != ""
	if !p.opts.Admission || !looked || p.job.index == (source{}) || p.req.plan.Spec.Shard.By != plan.ShardAuto {
		return
	}
	why := ""
	if p.opts.NoOwner != "" {
		why = ": " + p.opts.NoOwner
	}
	refuse(nil, "the pod is one of several, and their number is unknown%s; set the annotation %s of the pod template to the number, or write shard: {by: none} into the plan if each pod needs all of the data", why, AnnotationCount)
}

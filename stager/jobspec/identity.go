package jobspec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/plan"
)

// Labels and annotations that hold an identity of a pod's job: another one for another
// job of the same name, and the same one on all pods of a job.
const (
	controllerUID = "batch.kubernetes.io/controller-uid" // by the Job controller
	jobSetUID     = "jobset.sigs.k8s.io/jobset-uid"      // by JobSet, the same over its restarts
	volcanoGroup  = "scheduling.k8s.io/group-name"       // by Volcano: name and UID of its job
	frameworkUID  = "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID"  // by FrameworkController, another one after a retry
)

// Variables of stager's containers with which the nodes of a checkpoint recognise each
// other.
const (
	jobUIDVariable = "STAGER_JOB_UID"
	podUIDVariable = "STAGER_POD_UID"
)

// identity returns the variables that say which job and which pod this is. They are there
// only with an output that several nodes save together.
func (p *pod) identity() (all []variable) {
	outputs := p.req.plan.Spec.Outputs
	i := slices.IndexFunc(outputs, func(out plan.Output) bool { return out.Nodes == plan.NodesAll })
	if i < 0 {
		return nil
	}
	_, named := p.opts.Env[jobUIDVariable]
	switch {
	case p.job.uid != (source{}):
		all = append(all, variable{jobUIDVariable, p.job.uid})
	case !named:
		or := fmt.Sprintf(", or another %s by --container-env", jobUIDVariable)
		if p.opts.Admission {
			or = ", such as with {job} in its URL"
		}
		p.warn("output %s is saved by all nodes together, and pods of %s cannot read an identity of their job: another job with the same destination can be told from this one only by its members; give each job a destination of its own%s",
			outputs[i].Name, article(p.t.object.kind), or)
	}
	return append(all, variable{podUIDVariable, source{field: "metadata.uid"}})
}

// article puts "a" or "an" before the name of a kind.
func article(kind string) string {
	if kind == "" {
		return "this object"
	}
	if strings.ContainsRune("AEIOU", rune(kind[0])) || strings.HasPrefix(kind, "MPI") || strings.HasPrefix(kind, "XG") {
		return "an " + kind
	}
	return "a " + kind
}

// uidOfPod returns where a pod that its controller created has the identity of its job.
// The Jobs of a JobSet are created again at each restart, so theirs is not that of a
// JobSet which is too old to have one.
func uidOfPod(t *template) source {
	labels := t.node.Get("metadata", "labels")
	annotations := t.node.Get("metadata", "annotations")
	switch {
	case labels.Get(jobSetUID) != nil:
		return label(jobSetUID)
	case labels.Get(jobSetName) != nil:
		return source{}
	case labels.Get(kubeflowName) != nil:
		return source{} // only the launcher of an MPIJob is made by a Job
	case labels.Get(controllerUID) != nil:
		return label(controllerUID)
	case annotations.Get(frameworkUID) != nil:
		return annotationSource(frameworkUID)
	case labels.Get(volcanoName) != nil && annotations.Get(volcanoGroup) != nil:
		return annotationSource(volcanoGroup)
	}
	return source{}
}

const volcanoName = "volcano.sh/job-name"

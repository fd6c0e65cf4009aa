package jobspec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/plan"
)

// Labels and annotations that identify a pod's job. All pods of a job have the same value, and
// another job of the same name has a different one.
const (
	controllerUID = "batch.kubernetes.io/controller-uid" // set by the Job controller
	jobSetUID     = "jobset.sigs.k8s.io/jobset-uid"      // set by JobSet; constant across restarts
	volcanoGroup  = "scheduling.k8s.io/group-name"       // set by Volcano: name and UID of its job
	frameworkUID  = "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID"  // set by FrameworkController; changes after a retry
)

// Variables of stager's containers with which the nodes of a checkpoint identify each other.
const (
	jobUIDVariable = "STAGER_JOB_UID"
	podUIDVariable = "STAGER_POD_UID"
)

// identity returns the variables that identify the job and the pod. They are set only if several
// nodes save an output together.
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
		p.warn("output %s is saved by all nodes together, and pods of %s cannot read an identity of their job: another job with the same destination can be distinguished from this one only by its members; use a separate destination for each job%s",
			outputs[i].Name, article(p.t.object.kind), or)
	}
	return append(all, variable{podUIDVariable, source{field: "metadata.uid"}})
}

// article returns the name of a kind with "a" or "an".
func article(kind string) string {
	if kind == "" {
		return "this object"
	}
	if strings.ContainsRune("AEIOU", rune(kind[0])) || strings.HasPrefix(kind, "MPI") || strings.HasPrefix(kind, "XG") {
		return "an " + kind
	}
	return "a " + kind
}

// uidOfPod returns the source of the job's identity in a pod that a controller created. A JobSet
// creates its Jobs again at each restart. A Job's UID is therefore not the identity of a JobSet
// that is too old to have one.
func uidOfPod(t *template) source {
	labels := t.node.Get("metadata", "labels")
	annotations := t.node.Get("metadata", "annotations")
	switch {
	case labels.Get(jobSetUID) != nil:
		return label(jobSetUID)
	case labels.Get(jobSetName) != nil:
		return source{}
	case labels.Get(kubeflowName) != nil:
		return source{} // a Job creates only the launcher of an MPIJob
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

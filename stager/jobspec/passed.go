package jobspec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// podSpecs are the kinds that have a pod's spec where no pod template is. Their annotations
// are those of the object.
var podSpecs = []struct{ kind, group, path string }{
	{"InferenceService", "serving.kserve.io", "spec.predictor"},
	{"LLMInferenceService", "serving.kserve.io", "spec.template"},
	{"LLMInferenceServiceConfig", "serving.kserve.io", "spec.template"},
}

// passedKinds are kinds with one reason.
type passedKinds struct {
	kinds  []string
	group  string
	reason string
}

// passed are the kinds whose pods cannot be injected through them, although they have
// containers of some sort, and why. What looks like a pod template within is none.
var passed = []passedKinds{
	{
		[]string{"ServingRuntime", "ClusterServingRuntime"},
		"serving.kserve.io",
		"it takes no init containers; inject an InferenceService that has its container in spec.predictor.containers",
	},
	{
		[]string{"InferenceService"},
		"serving.kserve.io",
		"its container is that of a ServingRuntime; write it out in spec.predictor.containers",
	},
	{
		[]string{"TrainJob"},
		"trainer.kubeflow.org",
		"its pods are those of its runtime, to which it cannot add containers; inject the TrainingRuntime or ClusterTrainingRuntime",
	},
	{
		[]string{"Task", "ClusterTask", "TaskRun", "Pipeline", "PipelineRun"},
		"tekton.dev",
		"its steps are containers that Tekton runs one after another, and a sidecar of stager would not end with them; add steps that run stager prefetch and stager push",
	},
	{
		[]string{"Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow"},
		"argoproj.io",
		"Argo makes its pods, and the webhook injects those of templates whose metadata has the annotations and the label " + LabelInject + `: "true"`,
	},
	{
		[]string{"SparkApplication", "ScheduledSparkApplication"},
		"sparkoperator.k8s.io",
		"it has no pod template; write one with the container spark-kubernetes-driver as spec.driver.template, and one with spark-kubernetes-executor as spec.executor.template",
	},
}

// group is that of the object's API; "" is the core's.
func (o *object) group() string {
	if group, _, ok := strings.Cut(o.apiVersion, "/"); ok {
		return group
	}
	return ""
}

// passedBy returns why an object without pod templates has none; "" where that is no wonder.
func (o *object) passedBy() string {
	if i := o.passedAs(); i >= 0 {
		return passed[i].reason
	}
	if o.isFlat() {
		return fmt.Sprintf("the containers in its spec may be no pod's, as the kind %s is not known; if they are, give --path spec", o.kind)
	}
	return ""
}

// opaque reports whether nothing within an object is a pod template, whatever it looks like.
func (o *object) opaque() bool {
	return o.passedAs() >= 0 && !strings.HasSuffix(o.kind, "SparkApplication")
}

func (o *object) passedAs() int {
	return slices.IndexFunc(passed, func(p passedKinds) bool { return p.group == o.group() && slices.Contains(p.kinds, o.kind) })
}

// isFlat reports whether an object has containers right in its spec, as a Pod has, and is
// of a kind that may mean something else: ServingRuntime, Prometheus and others do.
func (o *object) isFlat() bool {
	return o.kind != "Pod" && len(o.root.Get("spec", "containers").All()) > 0
}

// podSpecAt returns the path of the pod's spec in an object of a kind that has one without a
// pod template; "" for others.
func (o *object) podSpecAt() string {
	for _, p := range podSpecs {
		if p.kind == o.kind && p.group == o.group() {
			return p.path
		}
	}
	return ""
}

// isPodSpec reports whether a node has containers, each with a name.
func isPodSpec(n *yamledit.Node) bool {
	containers := n.Get("containers")
	return containers != nil && len(containers.Items) > 0 && !slices.ContainsFunc(containers.Items, func(c *yamledit.Node) bool {
		return c.Get("name").Text() == ""
	})
}

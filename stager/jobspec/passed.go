package jobspec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// podSpecs lists the kinds that have a pod spec without a pod template. Their annotations are those
// of the object.
var podSpecs = []struct{ kind, group, path string }{
	{"InferenceService", "serving.kserve.io", "spec.predictor"},
	{"LLMInferenceService", "serving.kserve.io", "spec.template"},
	{"LLMInferenceServiceConfig", "serving.kserve.io", "spec.template"},
}

// passedKinds are kinds that cannot be injected for the same reason.
type passedKinds struct {
	kinds  []string
	group  string
	reason string
}

// passed lists the kinds that have containers but whose pods cannot be injected through them, with
// the reason. Nothing in them is treated as a pod template.
var passed = []passedKinds{
	{
		[]string{"ServingRuntime", "ClusterServingRuntime"},
		"serving.kserve.io",
		"it supports no init containers; inject an InferenceService that has its container in spec.predictor.containers",
	},
	{
		[]string{"InferenceService"},
		"serving.kserve.io",
		"its container comes from a ServingRuntime; write it into spec.predictor.containers",
	},
	{
		[]string{"TrainJob"},
		"trainer.kubeflow.org",
		"its pods come from its runtime, and it cannot add containers to them; inject the TrainingRuntime or ClusterTrainingRuntime",
	},
	{
		[]string{"Task", "ClusterTask", "TaskRun", "Pipeline", "PipelineRun"},
		"tekton.dev",
		"its steps are containers that Tekton runs one after another, and a sidecar of stager would not end with them; add steps that run stager prefetch and stager push",
	},
	{
		[]string{"Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow"},
		"argoproj.io",
		"Argo creates its pods; the webhook injects the pods of templates whose metadata has the annotations and the label " + LabelInject + `: "true"`,
	},
	{
		[]string{"SparkApplication", "ScheduledSparkApplication"},
		"sparkoperator.k8s.io",
		"it has no pod template; write one with the container spark-kubernetes-driver as spec.driver.template, and one with spark-kubernetes-executor as spec.executor.template",
	},
}

// group returns the API group of the object; "" is the core group.
func (o *object) group() string {
	if group, _, ok := strings.Cut(o.apiVersion, "/"); ok {
		return group
	}
	return ""
}

// passedBy returns why an object has no pod templates, or "" if that is obvious.
func (o *object) passedBy() string {
	if i := o.passedAs(); i >= 0 {
		return passed[i].reason
	}
	if o.isFlat() {
		return fmt.Sprintf("the kind %s is unknown, so the containers in its spec may not belong to a pod; if they do, use --path spec", o.kind)
	}
	return ""
}

// opaque reports whether an object contains no pod templates although parts of it look like one.
func (o *object) opaque() bool {
	return o.passedAs() >= 0 && !strings.HasSuffix(o.kind, "SparkApplication")
}

func (o *object) passedAs() int {
	return slices.IndexFunc(passed, func(p passedKinds) bool { return p.group == o.group() && slices.Contains(p.kinds, o.kind) })
}

// isFlat reports whether an object that is not a Pod has containers directly in its spec. Their
// meaning depends on the kind: examples are ServingRuntime and Prometheus.
func (o *object) isFlat() bool {
	return o.kind != "Pod" && len(o.root.Get("spec", "containers").All()) > 0
}

// podSpecAt returns the path of the pod spec in an object of a kind without pod templates, and ""
// for other kinds.
func (o *object) podSpecAt() string {
	for _, p := range podSpecs {
		if p.kind == o.kind && p.group == o.group() {
			return p.path
		}
	}
	return ""
}

// isPodSpec reports whether a node has containers, all of them named.
func isPodSpec(n *yamledit.Node) bool {
	containers := n.Get("containers")
	return containers != nil && len(containers.Items) > 0 && !slices.ContainsFunc(containers.Items, func(c *yamledit.Node) bool {
		return c.Get("name").Text() == ""
	})
}

package jobspec

import (
	"strings"
	"testing"
)

// Annotations without effect were ignored silently: inject exited with 0, and the job ran without
// its data.
func TestUnmatched(t *testing.T) {
	const (
		in       = `stager.dev/in.train: "s3://b/train/ -> /data"`
		noEffect = "stager.dev/in.train has no effect on this "
		service  = `{apiVersion: serving.kserve.io/v1beta1, kind: InferenceService, metadata: {name: x, annotations: {` + in + `}}, spec: {predictor: {model: {}}}}`
	)
	for _, tt := range []struct {
		name, file string
		opts       Options
		want       string // "": nothing is unmatched
	}{
		{"a job that asks", job(in, "", ""), Options{}, ""},
		{"an InferenceService", service, Options{}, noEffect + "InferenceService: its container comes from a ServingRuntime"},
		{"a SparkApplication", `{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, metadata: {name: x}, spec: {driver: {annotations: {` + in + `}}}}`, Options{}, noEffect + "SparkApplication: it has no pod template; write one with the container spark-kubernetes-driver"},
		{"a kind that nobody knows", `{apiVersion: example.com/v1, kind: Widget, metadata: {name: x, annotations: {` + in + `}}, spec: {}}`, Options{}, "stager.dev/in.train has no effect: a Widget has no pod template here"},
		{"a TaskRun", `{apiVersion: tekton.dev/v1, kind: TaskRun, metadata: {name: x, annotations: {` + in + `}}, spec: {taskSpec: {steps: [{name: s, image: i}]}}}`, Options{}, noEffect + "TaskRun: its steps are containers that Tekton runs one after another"},
		{"a TrainJob", `{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: x, annotations: {` + in + `}}, spec: {runtimeRef: {name: torch}}}`, Options{}, noEffect + "TrainJob: its pods come from its runtime"},
		{"a Workflow without the label", `{apiVersion: argoproj.io/v1alpha1, kind: Workflow, metadata: {name: x}, spec: {podMetadata: {annotations: {` + in + `}}}}`, Options{}, noEffect + "Workflow: Argo creates its pods"},
		{"a Workflow for the webhook", `{apiVersion: argoproj.io/v1alpha1, kind: Workflow, metadata: {name: x}, spec: {podMetadata: {labels: {stager.dev/inject: "true"}, annotations: {` + in + `}}}}`, Options{}, ""},
		{"beside the pod template", strings.Replace(job(in, "", ""), "metadata: {name: train}", "metadata: {name: train}\nstatus: {metadata: {annotations: {stager.dev/out.o: x}}}", 1), Options{}, "stager.dev/out.o has no pod template below it"},
		{"a container without a name", "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: x}\nspec:\n  template:\n    metadata: {annotations: {" + in + "}}\n    spec:\n      containers:\n      - image: i\n", Options{}, noEffect + "Service: the container at line 9 has no name; write one, such as name: main"},
		{"an InferenceService without a name", strings.Replace(service, "model: {}", "containers: [{image: i}]", 1), Options{}, noEffect + "InferenceService: the container at line 1 has no name"},
		{"a runtime without a name", `{apiVersion: serving.kserve.io/v1alpha1, kind: ServingRuntime, metadata: {name: x, annotations: {` + in + `}}, spec: {containers: [{image: i}]}}`, Options{}, noEffect + "ServingRuntime: it supports no init containers"},
		{"another prefix", job(`stager.io/in.train: "s3://b/train/ -> /data"`, "", ""), Options{}, "the annotation stager.io/in.train is not one of stager's, which begin with stager.dev/"},
		{"another prefix of a kind without a pod template", strings.Replace(service, "stager.dev/in.train", "stager/in.train", 1), Options{}, "the annotation stager/in.train is not one of stager's"},
		{"a label of another prefix", strings.Replace(job(in, "", ""), "metadata: {name: train}", `metadata: {name: train, labels: {stager.io/inject: "true"}}`, 1), Options{}, "the label stager.io/inject is not one of stager's"},
		{"the label alone", `{apiVersion: v1, kind: Pod, metadata: {name: x, labels: {stager.dev/inject: "true"}}, spec: {containers: [{name: main, image: x}]}}`, Options{}, "no annotation defines which data it needs"},
		{"the label and a plan for all", `{apiVersion: v1, kind: Pod, metadata: {name: x, labels: {stager.dev/inject: "true"}}, spec: {containers: [{name: main, image: x}]}}`, Options{Plan: []byte(onePlan)}, ""},
		{"the label of a ConfigMap with a plan", `{apiVersion: v1, kind: ConfigMap, metadata: {name: x, labels: {stager.dev/plan: ""}}, data: {}}`, Options{}, ""},
		{"others", `{apiVersion: v1, kind: Service, metadata: {name: x, annotations: {a: b, prometheus.io/scrape: "true"}}, spec: {}}`, Options{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			result, err := Inject([]byte(tt.file), tt.opts)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			for _, o := range result.Objects {
				got += strings.Join(o.Unmatched, "\n")
			}
			if !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

package jobspec

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/stager-dev/stager/stager/jobspec/corpus"
)

// templated are objects with a pod template, which is $POD.
var templated = []string{
	`{apiVersion: batch/v1, kind: Job, metadata: {name: x}, spec: {completions: 2, parallelism: 2, completionMode: Indexed, template: $POD}}`,
	`{apiVersion: batch/v1, kind: CronJob, metadata: {name: x}, spec: {schedule: "0 0 * * *", jobTemplate: {spec: {template: $POD}}}}`,
	`{apiVersion: apps/v1, kind: Deployment, metadata: {name: x}, spec: {replicas: 2, template: $POD}}`,
	`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x}, spec: {serviceName: x, template: $POD}}`,
	`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: x}, spec: {replicatedJobs: [{name: a, template: {spec: {template: $POD}}}, {name: b, template: {spec: {completions: 3, template: $POD}}}]}}`,
	`{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: x}, spec: {pytorchReplicaSpecs: {Master: {replicas: 1, template: $POD}, Worker: {replicas: 3, template: $POD}}}}`,
	`{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainingRuntime, metadata: {name: x}, spec: {mlPolicy: {numNodes: 2}, template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: $POD}}}]}}}}`,
	`{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: x}, spec: {headGroupSpec: {template: $POD}, workerGroupSpecs: [{groupName: w, replicas: 2, template: $POD}]}}`,
	`{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: x}, spec: {plugins: {env: []}, tasks: [{name: w, replicas: 2, template: $POD}]}}`,
	`{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: x}, spec: {replicas: 1, leaderWorkerTemplate: {size: 2, leaderTemplate: $POD, workerTemplate: $POD}}}`,
	`{apiVersion: frameworkcontroller.microsoft.com/v1, kind: Framework, metadata: {name: x}, spec: {taskRoles: [{name: w, taskNumber: 2, task: {pod: $POD}}]}}`,
	`{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: x}, spec: {template: $POD}}`,
}

// Every pod of the corpus is put into an object of every kind, which is written by one program,
// injected, and rewritten by another. The guarantees of the corpus hold for each of these files.
func TestPodsOfTheCorpusInEveryKindAreReversible(t *testing.T) {
	written, err := corpus.Manifests()
	if err != nil {
		t.Fatal(err)
	}
	files, alone := 0, 0 // alone: not injected, as the one pod that asks for nothing
	for _, f := range written {
		var pod struct {
			Kind     string         `json:"kind"`
			Metadata map[string]any `json:"metadata"`
			Spec     map[string]any `json:"spec"`
		}
		if err := yaml.Unmarshal(f.Text, &pod); err != nil || pod.Kind != "Pod" {
			continue
		}
		template, err := json.Marshal(map[string]any{"metadata": pod.Metadata, "spec": pod.Spec})
		if err != nil {
			t.Fatal(err)
		}
		for i, object := range templated {
			writer, other := corpus.Writers[(files+i)%len(corpus.Writers)], corpus.Writers[(files+i+1)%len(corpus.Writers)]
			text, err := writer.Rewrite([]byte(strings.ReplaceAll(object, "$POD", string(template))))
			if err != nil {
				t.Fatal(err)
			}
			opts := corpusOptions["wrap"]
			injected, err := Inject(text, opts)
			if err != nil || bytes.Equal(injected.Output, text) {
				alone++
				t.Logf("%s in %.80s: %v", f.Name, object, err)
				continue
			}
			files++
			holds(t, text, opts)
			if err := survives(text, injected.Output, other, opts); err != nil {
				t.Errorf("%s in %.80s, written by %s and %s: %v", f.Name, object, writer.Name, other.Name, err)
			}
		}
	}
	t.Logf("%d files, and %d that are not injected", files, alone)
	if files < 200 || alone > len(templated) {
		t.Errorf("%d files and %d that are not injected, want 200 at least, and %d at most", files, alone, len(templated))
	}
}

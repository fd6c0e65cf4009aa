package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// kinds are those of other projects that stager knows: what the API server needs to
// know of them, and one object, in which $POD stands for a pod template.
var kinds = []struct{ group, version, kind, plural, spec string }{
	{"jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", `{replicatedJobs: [{name: worker, replicas: 2, template: {spec: {completions: 3, parallelism: 3, completionMode: Indexed, template: $POD}}}]}`},
	{"kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", `{pytorchReplicaSpecs: {Master: {replicas: 1, template: $POD}, Worker: {replicas: 3, template: $POD}}}`},
	{"kubeflow.org", "v1", "TFJob", "tfjobs", `{tfReplicaSpecs: {Worker: {replicas: 2, template: $POD}}}`},
	{"kubeflow.org", "v2beta1", "MPIJob", "mpijobs", `{mpiReplicaSpecs: {Launcher: {replicas: 1, template: $POD}, Worker: {replicas: 2, template: $POD}}}`},
	{"kubeflow.org", "v1", "XGBoostJob", "xgboostjobs", `{xgbReplicaSpecs: {Master: {replicas: 1, template: $POD}}}`},
	{"ray.io", "v1", "RayCluster", "rayclusters", `{headGroupSpec: {template: $POD}, workerGroupSpecs: [{groupName: w, replicas: 2, template: $POD}]}`},
	{"batch.volcano.sh", "v1alpha1", "Job", "jobs", `{minAvailable: 2, tasks: [{name: worker, replicas: 2, template: $POD}]}`},
	{"leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets", `{replicas: 1, leaderWorkerTemplate: {size: 2, leaderTemplate: $POD, workerTemplate: $POD}}`},
}

// definition is a CustomResourceDefinition that takes any spec: the projects' own run
// to thousands of lines each.
const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[4]s.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: %[3]s, plural: %[4]s, singular: %[5]s, listKind: %[3]sList}
  versions:
  - name: %[2]s
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
---
`

// TestKinds asks the API server whether it would take objects of other projects with
// stager in them: metadata are checked, and that the text still is what it was around
// the pod templates, which golden files show to be right.
func TestKinds(t *testing.T) {
	c := asked(t)
	var definitions strings.Builder
	for _, k := range kinds {
		fmt.Fprintf(&definitions, definition, k.group, k.version, k.kind, k.plural, strings.ToLower(k.kind))
	}
	c.apply(t, definitions.String())
	for _, k := range kinds {
		t.Run(k.kind+"."+k.group, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			resource := k.plural + "." + k.group
			if _, err := c.kubectl(ctx, "", "wait", "--for=condition=Established", "--timeout=50s", "crd/"+resource); err != nil {
				t.Fatal(err)
			}
			injected := c.inject(t, fmt.Sprintf("{apiVersion: %s/%s, kind: %s, metadata: {name: x, annotations: %s}, spec: %s}\n",
				k.group, k.version, k.kind, asks, strings.ReplaceAll(k.spec, "$POD", podTemplate)))
			if !strings.Contains(injected, "/run/stager") {
				t.Fatalf("nothing was injected into\n%s", injected)
			}
			if _, err := c.kubectl(ctx, injected, "create", "--dry-run=server", "--validate=strict", "-f", "-"); err != nil {
				t.Error(err)
			}
		})
	}
}

const (
	asks        = `{stager.dev/in.train: "s3://b/train/ -> /data/train ? mode=window&size=1Gi", stager.dev/out.ckpt: "/out -> s3://b/runs/{job}/"}`
	podTemplate = `{spec: {containers: [{name: main, image: trainer}]}}`
)

// inject puts stager into a manifest, as its user does.
func (c *cluster) inject(t *testing.T, manifest string, flags ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(c.bin, "stager"), append([]string{"inject", "-q", "-f", "-"}, flags...)...)
	cmd.Stdin = strings.NewReader(manifest)
	injected, err := output(cmd)
	if err != nil {
		t.Fatalf("%v in\n%s", err, manifest)
	}
	return injected
}

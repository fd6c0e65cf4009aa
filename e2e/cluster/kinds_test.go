package cluster

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// kind is one of another project.
type kind struct{ group, version, name, plural, scope string }

func (k kind) resource() string { return k.plural + "." + k.group }

// kinds are those that stager knows, each with an object's spec in which $POD stands
// for a pod template, and how many of these are in it.
var kinds = []struct {
	kind
	spec string
	pods int
}{
	{jobSet, `{replicatedJobs: [{name: worker, replicas: 2, template: {spec: {completions: 3, parallelism: 3, completionMode: Indexed, template: $POD}}}]}`, 1},
	{kind{"kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", ""}, `{pytorchReplicaSpecs: {Master: {replicas: 1, template: $POD}, Worker: {replicas: 3, template: $POD}}}`, 2},
	{kind{"kubeflow.org", "v1", "TFJob", "tfjobs", ""}, `{tfReplicaSpecs: {PS: {replicas: 1, template: $POD}, Worker: {replicas: 2, template: $POD}}}`, 2},
	{kind{"kubeflow.org", "v2beta1", "MPIJob", "mpijobs", ""}, `{mpiReplicaSpecs: {Launcher: {replicas: 1, template: $POD}, Worker: {replicas: 2, template: $POD}}}`, 2},
	{kind{"kubeflow.org", "v1", "XGBoostJob", "xgboostjobs", ""}, `{xgbReplicaSpecs: {Master: {replicas: 1, template: $POD}}}`, 1},
	{kind{"kubeflow.org", "v1", "PaddleJob", "paddlejobs", ""}, `{paddleReplicaSpecs: {Worker: {replicas: 2, template: $POD}}}`, 1},
	{kind{"kubeflow.org", "v1", "JAXJob", "jaxjobs", ""}, `{jaxReplicaSpecs: {Worker: {replicas: 2, template: $POD}}}`, 1},
	{kind{"trainer.kubeflow.org", "v1alpha1", "TrainingRuntime", "trainingruntimes", ""}, trainSpec, 1},
	{kind{"trainer.kubeflow.org", "v1alpha1", "ClusterTrainingRuntime", "clustertrainingruntimes", "Cluster"}, trainSpec, 1},
	{kind{"ray.io", "v1", "RayCluster", "rayclusters", ""}, raySpec, 2},
	{kind{"ray.io", "v1", "RayJob", "rayjobs", ""}, `{entrypoint: python train.py, rayClusterSpec: ` + raySpec + `}`, 2},
	{kind{"ray.io", "v1", "RayService", "rayservices", ""}, `{rayClusterConfig: ` + raySpec + `}`, 2},
	{kind{"batch.volcano.sh", "v1alpha1", "Job", "jobs", ""}, `{minAvailable: 2, plugins: {env: []}, tasks: [{name: worker, replicas: 2, template: $POD}]}`, 1},
	{kind{"leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets", ""}, `{replicas: 1, leaderWorkerTemplate: {size: 2, leaderTemplate: $POD, workerTemplate: $POD}}`, 2},
	{kind{"frameworkcontroller.microsoft.com", "v1", "Framework", "frameworks", ""}, `{executionType: Start, taskRoles: [{name: worker, taskNumber: 2, task: {pod: $POD}}]}`, 1},
}

const (
	trainSpec = `{mlPolicy: {numNodes: 2}, template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: $POD}}}]}}}`
	raySpec   = `{headGroupSpec: {rayStartParams: {}, template: $POD}, workerGroupSpecs: [{groupName: w, replicas: 2, rayStartParams: {}, template: $POD}]}`
)

// jobSet is the kind that stager itself writes, so that what is known of it is strict:
// testdata/jobset.yaml.
var jobSet = kind{"jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", ""}

// definition is a CustomResourceDefinition that takes any spec: the projects' own run
// to thousands of lines each.
const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[4]s.%[1]s}
spec:
  group: %[1]s
  scope: %[5]s
  names: {kind: %[3]s, plural: %[4]s, singular: %[6]s, listKind: %[3]sList}
  versions:
  - name: %[2]s
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
---
`

// define makes the API server know the kinds of other projects, and returns when it
// does.
func (c *cluster) define(t *testing.T, more ...kind) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	definitions, wait := read(t, "testdata/jobset.yaml")+"---\n", []string{"wait", "--for=condition=Established", "--timeout=50s", "crd/" + jobSet.resource()}
	for _, k := range kinds {
		more = append(more, k.kind)
	}
	for _, k := range more {
		if k == jobSet {
			continue
		}
		definitions += fmt.Sprintf(definition, k.group, k.version, k.name, k.plural, cmp.Or(k.scope, "Namespaced"), strings.ToLower(k.name))
		wait = append(wait, "crd/"+k.resource())
	}
	c.apply(t, definitions)
	if _, err := c.kubectl(ctx, "", wait...); err != nil {
		t.Fatal(err)
	}
}

// TestKinds asks the API server whether it would take objects of other projects with
// stager in them: their metadata, and each of their pod templates as a Pod.
func TestKinds(t *testing.T) {
	c := asked(t, apiServer)
	c.define(t)
	for _, k := range kinds {
		t.Run(k.name+"."+k.group, func(t *testing.T) {
			injected := c.inject(t, fmt.Sprintf("{apiVersion: %s/%s, kind: %s, metadata: {name: x, annotations: %s}, spec: %s}\n",
				k.group, k.version, k.name, asks, strings.ReplaceAll(k.spec, "$POD", podTemplate)))
			pods := 0
			for _, o := range c.takes(t, injected) {
				for _, inner := range templatesIn(o, "") {
					if strings.Contains(inner, `"kind":"Pod"`) && strings.Contains(inner, "/run/stager") {
						pods++
					}
				}
			}
			if pods != k.pods {
				t.Errorf("stager is in %d pod templates, want %d, of\n%s", pods, k.pods, injected)
			}
		})
	}
}

const (
	asks        = `{stager.dev/in.train: "s3://b/train/ -> /data/train ? mode=window&size=1Gi", stager.dev/out.ckpt: "/out -> s3://b/runs/{job}/"}`
	podTemplate = `{spec: {restartPolicy: Never, containers: [{name: main, image: trainer}]}}`
)

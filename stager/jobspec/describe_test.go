package jobspec

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// described returns the pods of a file, which must be valid.
func described(t *testing.T, file string) []*Pod {
	t.Helper()
	_, pods, err := Describe([]byte(file), Options{})
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	return pods
}

// The number of pods is found in each form that objects use, including the defaults.
func TestDescribeCountsThePodsOfEachKind(t *testing.T) {
	const pod = `{metadata: {annotations: {stager.dev/in.train: "s3://b/train/ -> /data"}}, spec: {containers: [{name: main, image: x, command: [x]}]}}`
	for _, tt := range []struct {
		kind, spec             string
		total, atOnce, sharing int
		unknown                string // a part of Count.Why; "": empty
	}{
		{"batch/v1 Job", `{template: POD}`, 1, 1, 1, ""},
		{"batch/v1 Job", `{parallelism: 3, template: POD}`, 3, 3, 1, ""},
		{"batch/v1 Job", `{completions: 8, parallelism: 3, template: POD}`, 8, 3, 1, ""},
		{"batch/v1 Job", `{completions: 2, parallelism: 3, completionMode: Indexed, template: POD}`, 2, 2, 2, ""},
		{"batch/v1 CronJob", `{jobTemplate: {spec: {completions: 2, parallelism: 2, template: POD}}}`, 2, 2, 1, "of each run"},
		{"apps/v1 Deployment", `{template: POD}`, 1, 1, 1, ""},
		{"apps/v1 Deployment", `{replicas: 5, template: POD}`, 5, 5, 1, ""},
		{"apps/v1 StatefulSet", `{replicas: 5, template: POD}`, 5, 5, 1, ""},
		{"apps/v1 DaemonSet", `{template: POD}`, 0, 0, 1, "one pod on each node"},
		{"jobset.x-k8s.io/v1alpha2 JobSet", `{replicatedJobs: [{name: w, replicas: 3, template: {spec: {completions: 2, parallelism: 2, completionMode: Indexed, template: POD}}}]}`, 6, 6, 6, ""},
		{"kubeflow.org/v1 PyTorchJob", `{pytorchReplicaSpecs: {Worker: {replicas: 4, template: POD}}}`, 4, 4, 4, ""},
		{"ray.io/v1 RayCluster", `{workerGroupSpecs: [{groupName: g, replicas: 3, template: POD}]}`, 3, 3, 1, ""},
		{"batch.volcano.sh/v1alpha1 Job", `{plugins: {env: []}, tasks: [{name: w, replicas: 3, template: POD}]}`, 3, 3, 3, ""},
		{"leaderworkerset.x-k8s.io/v1 LeaderWorkerSet", `{replicas: 2, leaderWorkerTemplate: {size: 4, workerTemplate: POD}}`, 8, 8, 1, ""},
		{"leaderworkerset.x-k8s.io/v1 LeaderWorkerSet", `{replicas: 2, leaderWorkerTemplate: {size: 4, leaderTemplate: POD, workerTemplate: {spec: {containers: [{name: x, image: x}]}}}}`, 2, 2, 1, ""},
		{"example.com/v1 Thing", `{template: POD}`, 1, 1, 1, "the number of pods of"},
	} {
		version, kind, _ := strings.Cut(tt.kind, " ")
		file := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: x}\nspec: %s\n", version, kind, strings.Replace(tt.spec, "POD", pod, 1))
		pods := described(t, file)
		if len(pods) != 1 {
			t.Errorf("%s %s: %d pods, want 1", tt.kind, tt.spec, len(pods))
			continue
		}
		p := pods[0]
		if p.Pods.Total != tt.total || p.Pods.AtOnce != tt.atOnce || p.Sharing != tt.sharing || !strings.Contains(p.Pods.Why, tt.unknown) || tt.unknown == "" && p.Pods.Why != "" {
			t.Errorf("%s %s: %+v, shared by %d; want %d, %d at once, shared by %d, %q", tt.kind, tt.spec, p.Pods, p.Sharing, tt.total, tt.atOnce, tt.sharing, tt.unknown)
		}
	}
}

// Every added part has a reason. Describing an injected file gives the same result.
func TestDescribeGivesEachPartAReason(t *testing.T) {
	files, err := filepath.Glob("testdata/golden/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	seen := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		result, pods, err := Describe(text, Options{JobPolicies: true})
		if err != nil {
			continue // golden_test.go covers it
		}
		for _, p := range pods {
			for _, part := range p.Parts {
				seen++
				if part.Reason == "" {
					t.Errorf("%s: %s: %s %s of %q is put in without a reason", file, p, part.Kind, part.Name, part.Container)
				}
			}
			for _, f := range p.Dirs {
				if f.Volume == "" || f.Mount == "" || f.Medium == "" {
					t.Errorf("%s: %s: %+v lies nowhere", file, p, f)
				}
			}
		}
		_, again, err := Describe(result.Output, Options{JobPolicies: true})
		if err != nil || len(again) != len(pods) {
			t.Errorf("%s: described again it has %d pods, %v; want %d", file, len(again), err, len(pods))
			continue
		}
		for i := range pods {
			if got, want := fmt.Sprint(again[i].Parts), fmt.Sprint(pods[i].Parts); got != want {
				t.Errorf("%s: described again it is\n%s\nwant\n%s", file, got, want)
			}
		}
	}
	if seen < 100 {
		t.Errorf("%d parts were seen; where are the files?", seen)
	}
}

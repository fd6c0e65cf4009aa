package jobspec_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec"
)

// A scheduler has generated a Job. Its user has defined the data in a plan.
func Example() {
	job := `apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  completions: 4
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main   # the trainer
        image: trainer
`
	plan := `apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata: {name: imagenet}
spec:
  inputs:
  - {name: train, source: "s3://datasets/train/", path: /data}
`
	result, err := jobspec.Inject([]byte(job), jobspec.Options{Plan: []byte(plan), Image: "registry.example/stager:1", JobPolicies: true})
	if err != nil {
		log.Fatal(err)
	}
	for _, o := range result.Objects {
		fmt.Println(o.Action, o, o.Template)
	}
	for _, line := range strings.Split(string(result.Output), "\n") {
		if strings.Contains(line, "name: stager") || strings.Contains(line, "the trainer") || strings.Contains(line, "STAGER_COUNT") {
			fmt.Println(strings.TrimSpace(line))
		}
	}
	// Output:
	// injected Job/train spec.template
	// - name: main   # the trainer
	// - {name: stager-train, mountPath: /data}
	// - name: stager-prefetch
	// - {name: STAGER_COUNT, value: "4"}
	// - {name: stager-train, mountPath: /data}
	// - {name: stager-tmp, mountPath: /tmp}
	// - {name: stager-train, emptyDir: {}}
	// - {name: stager-tmp, emptyDir: {}}
}

const pod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "annotations": {
  "stager.dev/out.results": "/out -> s3://runs/{job}/ ? commit=none"}},
 "spec": {"containers": [{"name": "main", "image": "trainer"}]}}
`

// Uninject reverses Inject exactly.
func ExampleUninject() {
	injected, err := jobspec.Inject([]byte(pod), jobspec.Options{})
	if err != nil {
		log.Fatal(err)
	}
	back, err := jobspec.Uninject(injected.Output)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(back.Output) == pod)
	// Output: true
}

// A pipeline checks whether its files are up to date.
func ExampleCheck() {
	stale, err := jobspec.Check([]byte(pod), jobspec.Options{})
	fmt.Println(stale[0], err)
	injected, err := jobspec.Inject([]byte(pod), jobspec.Options{})
	if err != nil {
		log.Fatal(err)
	}
	stale, err = jobspec.Check(injected.Output, jobspec.Options{})
	fmt.Println(len(stale), err)
	// Output:
	// Pod/x <nil>
	// 0 <nil>
}

// All faults of a file are reported at once, with positions.
func ExampleFaults() {
	_, err := jobspec.Inject([]byte(strings.ReplaceAll(pod, "commit=none", "comit=none")), jobspec.Options{})
	fmt.Println(err)
	// Output:
	// line 2, column 57: Pod/x: results: "comit" is not known here; known are commit, conflict, deadline, hold, interval, keep, keys, medium, minBandwidth, nodes, quietPeriod, required, secret, size, step, volume, when
}

// A webhook injects the Pod of its request. It leaves a Pod that was injected before, by any
// program, as it is.
func ExampleOptions_admission() {
	opts := jobspec.Options{Admission: true, PodSecurity: jobspec.Restricted}
	result, err := jobspec.Inject([]byte(pod), opts)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Objects[0].Action, len(result.Objects[0].Warnings), "warnings")
	again, err := jobspec.Inject(result.Output, opts)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(again.Objects[0].Action)
	// Output:
	// injected 2 warnings
	// unchanged
}

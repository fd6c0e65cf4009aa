package jobspec

import (
	"strings"
	"testing"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// allNodesPlan has an output that several nodes save together.
const allNodesPlan = `apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata: {name: x}
spec:
  inputs: [{name: train, source: "s3://b/train/", path: /data, credentials: {secret: reads}}]
  outputs: [{name: ckpt, path: /out, destination: "s3://b/ckpt/", nodes: all, when: [change, exit], credentials: {secret: writes}}]
`

// uidOf is the source of the job's identity in pods by API group and kind; "" is none.
var uidOf = map[string]string{
	"batch/v1 Job":                    "metadata.labels['batch.kubernetes.io/controller-uid']",
	"batch/v1 CronJob":                "metadata.labels['batch.kubernetes.io/controller-uid']",
	"jobset.x-k8s.io/v1alpha2 JobSet": "metadata.labels['jobset.sigs.k8s.io/jobset-uid']",
	"trainer.kubeflow.org/v1alpha1 ClusterTrainingRuntime": "metadata.labels['jobset.sigs.k8s.io/jobset-uid']",
	"batch.volcano.sh/v1alpha1 Job":                        "metadata.annotations['scheduling.k8s.io/group-name']",
	"frameworkcontroller.microsoft.com/v1 Framework":       "metadata.annotations['FC_FRAMEWORK_ATTEMPT_INSTANCE_UID']",
}

// createdPods are pods as their controllers send them to a webhook.
var createdPods = []struct{ metadata, want string }{
	{`labels: {batch.kubernetes.io/job-name: x, batch.kubernetes.io/controller-uid: u}`, "metadata.labels['batch.kubernetes.io/controller-uid']"},
	{
		`labels: {jobset.sigs.k8s.io/jobset-name: x, jobset.sigs.k8s.io/jobset-uid: u, batch.kubernetes.io/controller-uid: v}`,
		"metadata.labels['jobset.sigs.k8s.io/jobset-uid']",
	},
	{`labels: {jobset.sigs.k8s.io/jobset-name: x, batch.kubernetes.io/controller-uid: v}`, ""},
	{`labels: {training.kubeflow.org/job-name: x, training.kubeflow.org/replica-index: "0"}`, ""},
	{`labels: {training.kubeflow.org/job-name: x, batch.kubernetes.io/controller-uid: v}`, ""},
	{`labels: {volcano.sh/job-name: x}, annotations: {scheduling.k8s.io/group-name: x-u}`, "metadata.annotations['scheduling.k8s.io/group-name']"},
	{`annotations: {scheduling.k8s.io/group-name: by-hand}`, ""},
	{`annotations: {FC_FRAMEWORK_NAME: x, FC_FRAMEWORK_ATTEMPT_INSTANCE_UID: 0_u}`, "metadata.annotations['FC_FRAMEWORK_ATTEMPT_INSTANCE_UID']"},
	{`labels: {leaderworkerset.sigs.k8s.io/name: x, leaderworkerset.sigs.k8s.io/worker-index: "1"}`, ""},
	{`labels: {ray.io/cluster: x}`, ""},
	{`labels: {workflows.argoproj.io/workflow: x}`, ""},
}

// Pods did not contain the identity of their job. The nodes of two jobs with the same destination,
// or of a job and its predecessor, therefore wrote into one checkpoint.
func TestIdentityIsInEachContainerOfStager(t *testing.T) {
	type shape struct{ text, want string }
	var shapes []shape
	for _, k := range kinds {
		if strings.HasPrefix(k.want, "left alone") {
			continue
		}
		of := ""
		for name, field := range uidOf {
			version, kind, _ := strings.Cut(name, " ")
			if strings.HasPrefix(k.text, "{apiVersion: "+version+", kind: "+kind+",") {
				of = field
			}
		}
		shapes = append(shapes, shape{k.text, of})
	}
	for _, p := range createdPods {
		shapes = append(shapes, shape{`{apiVersion: v1, kind: Pod, metadata: {name: x, ` + p.metadata + `}, spec: {containers: [{name: main, image: x, command: [a]}]}}`, p.want})
	}
	if len(shapes) < 25 {
		t.Fatalf("there are %d shapes, want at least 25", len(shapes))
	}
	opts := Options{Plan: []byte(allNodesPlan)}
	for _, tt := range shapes {
		result, err := Inject([]byte(tt.text), opts)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		for _, o := range result.Objects {
			warned := strings.Contains(strings.Join(o.Warnings, "\n"), "cannot read an identity of their job")
			if warned != (tt.want == "") {
				t.Errorf("%s: a warning that there is no identity: got %v, want %v", tt.text, warned, tt.want == "")
			}
		}
		for where, env := range environments(t, result.Output) {
			if got := env["STAGER_JOB_UID"]; got != tt.want {
				t.Errorf("%s: %s: STAGER_JOB_UID is %q, want %q", tt.text, where, got, tt.want)
			}
			if got, want := env["STAGER_POD_UID"], "metadata.uid"; got != want {
				t.Errorf("%s: %s: STAGER_POD_UID is %q, want %q", tt.text, where, got, want)
			}
		}
		holds(t, []byte(tt.text), opts)
		decodes(t, result.Output)
	}
}

// environments returns the field sources of the variables of stager's containers, by template and
// container.
func environments(t *testing.T, text []byte) map[string]map[string]string {
	t.Helper()
	d := yamledit.Split(text)[0]
	if err := yamledit.Parse(d); err != nil {
		t.Fatal(err)
	}
	all := make(map[string]map[string]string)
	for _, o := range objectsIn(d) {
		o.findTemplates("")
		for _, tpl := range o.templates {
			for _, name := range []string{ContainerPrefetch, ContainerSidecar} {
				env := make(map[string]string)
				c := tpl.pod().Get("initContainers").Item("name", name)
				for _, v := range c.Get("env").All() {
					env[v.Get("name").Text()] = v.Get("valueFrom", "fieldRef", "fieldPath").Text()
				}
				all[tpl.Path()+" "+name] = env
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("no container of stager in %s", text)
	}
	return all
}

// The init container registers the job, and restores, at the output's destination. It has the
// Secret with write access.
func TestInitContainerOfSeveralNodesMayWrite(t *testing.T) {
	text := `{apiVersion: batch/v1, kind: Job, metadata: {name: x}, spec: {completions: 2, completionMode: Indexed, template: ` + podOf + `}}`
	result, err := Inject([]byte(text), Options{Plan: []byte(allNodesPlan)})
	if err != nil {
		t.Fatal(err)
	}
	d := yamledit.Split(result.Output)[0]
	if err := yamledit.Parse(d); err != nil {
		t.Fatal(err)
	}
	o := objectsIn(d)[0]
	o.findTemplates("")
	var paths []string
	for _, m := range o.templates[0].get(at("spec", "initContainers", "name="+ContainerPrefetch)).Get("volumeMounts").All() {
		paths = append(paths, m.Get("mountPath").Text())
	}
	if got := strings.Join(paths, " "); !strings.Contains(got, "/writes") {
		t.Errorf("the init container mounts %s, want the Secret writes among them", got)
	}
}

// A variable set by the user is also an identity.
func TestIdentityByContainerEnv(t *testing.T) {
	text := `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x}, spec: {replicas: 3, selector: {}, serviceName: x, template: ` + podOf + `}}`
	result, err := Inject([]byte(text), Options{Plan: []byte(allNodesPlan), Env: map[string]string{"STAGER_JOB_UID": "run-7"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(result.Objects[0].Warnings, "\n"); strings.Contains(got, "identity") {
		t.Errorf("warned of %q, want nothing of an identity", got)
	}
	if !strings.Contains(string(result.Output), "run-7") {
		t.Error("the variable is not in the injected object")
	}
}

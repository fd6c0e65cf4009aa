package jobspec

import (
	"fmt"
	"strings"
	"testing"
)

// createdBy returns a pod with labels as its controller creates it.
func createdBy(labels string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x-0","labels":{%s}},"spec":{"containers":[{"name":"main","image":"x","command":["a"]}]}}`, labels)
}

// A pod has its index but not the number of pods. An Indexed Job injected by the webhook always
// failed: each of its pods exited with code 78, "STAGER_INDEX says that this is node 0, and nothing
// says of how many", until the Job's backoffLimit was reached.
func TestOwnerCountsThePods(t *testing.T) {
	const (
		indexed = `"batch.kubernetes.io/job-name":"x","batch.kubernetes.io/job-completion-index":"1"`
		torch   = `"training.kubeflow.org/job-name":"x","training.kubeflow.org/replica-index":"1","training.kubeflow.org/replica-type":`
		jobSet  = indexed + `,"jobset.sigs.k8s.io/jobset-name":"s","jobset.sigs.k8s.io/job-index":"1","jobset.sigs.k8s.io/replicatedjob-replicas":"2"`
		job     = `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"x"},"spec":{"completions":%d,"completionMode":"Indexed","template":` + podOf + `}}`
		torches = `{"apiVersion":"kubeflow.org/v1","kind":"PyTorchJob","metadata":{"name":"x"},"spec":{"pytorchReplicaSpecs":{"Master":{"replicas":1,"template":` + podOf +
			`},"Worker":{"replicas":3,"template":` + podOf + `}}}}`
		tensors = `{"apiVersion":"kubeflow.org/v1","kind":"TFJob","metadata":{"name":"x"},"spec":{"tfReplicaSpecs":{"PS":{"replicas":2,"template":` + podOf +
			`},"Worker":{"replicas":3,"template":` + podOf + `}}}}`
	)
	for _, tt := range []struct {
		name, labels, owner string
		want                string // expected variables, or else
		refused             string // expected refusal
	}{
		{"Indexed Job", indexed, fmt.Sprintf(job, 4), "JOB=<job-name> INDEX=<job-completion-index> COUNT=4", ""},
		{"one pod", indexed, fmt.Sprintf(job, 1), "JOB=<job-name> INDEX=<job-completion-index> COUNT=1", ""},
		{"JobSet of several Jobs", jobSet, fmt.Sprintf(job, 3), "JOB=<jobset-name> JOB_INDEX=<job-index> POD_INDEX=<job-completion-index> INDEX=$(STAGER_JOB_INDEX)*3+$(STAGER_POD_INDEX) COUNT=6", ""},
		{"JobSet of Jobs of one pod", jobSet, fmt.Sprintf(job, 1), "JOB=<jobset-name> INDEX=<job-index> COUNT=2", ""},
		{"worker of a PyTorchJob", torch + `"worker"`, torches, "JOB=<job-name> ROLE=worker POD_INDEX=<replica-index> INDEX=$(STAGER_POD_INDEX)+1 COUNT=4", ""},
		{"master of a PyTorchJob", torch + `"master"`, torches, "JOB=<job-name> ROLE=master INDEX=<replica-index> COUNT=4", ""},
		{"parameter server, which takes all", torch + `"ps"`, tensors, "JOB=<job-name> ROLE=ps", ""},
		{"no owner", indexed, "", "", "their number is unknown: nobody may look; set the annotation stager.dev/count"},
		{"an owner that does not tell", indexed, `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"x"},"spec":{"template":` + podOf + `}}`, "", "their number is unknown"},
		{"an owner that is none", indexed, `{"apiVersion":`, "", "their number is unknown"},
		{"not one of several", `"app":"x"`, "", "JOB=x-0", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opts := Options{Plan: []byte(onePlan), Admission: true, NoOwner: "nobody may look"}
			if tt.owner != "" {
				opts.Owner, opts.NoOwner = []byte(tt.owner), ""
			}
			result, err := Inject(createdBy(tt.labels), opts)
			if tt.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tt.refused) {
					t.Errorf("got the error %v, want %q", err, tt.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(places(t, result), "\n")
			if want := ": " + tt.want; !strings.HasSuffix(got, want) {
				t.Errorf("got the variables %q, want %q", got, want)
			}
		})
	}
}

// A pod that defines the number itself needs no owner. A plan that divides no data needs no number.
func TestCountlessPodsThatMayRun(t *testing.T) {
	labels := `"batch.kubernetes.io/job-completion-index":"1"`
	counted := strings.Replace(string(createdBy(labels)), `"labels"`, `"annotations":{"stager.dev/count":"8"},"labels"`, 1)
	undivided := strings.Replace(onePlan, "spec:", "spec:\n  shard: {by: none}", 1)
	for name, tt := range map[string]struct{ pod, plan string }{
		"with the annotation": {counted, onePlan}, "not divided": {string(createdBy(labels)), undivided},
	} {
		if _, err := Inject([]byte(tt.pod), Options{Plan: []byte(tt.plan), Admission: true, NoOwner: "nobody may look"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

package jobspec

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// podWith returns an injected Pod with these annotations, as JSON.
func podWith(t *testing.T, annotations string) []byte {
	t.Helper()
	in := "apiVersion: v1\nkind: Pod\nmetadata:\n  name: train\n  annotations:\n" + annotations +
		"spec:\n  containers:\n  - {name: main, image: trainer, command: [python, -f, train.py]}\n"
	result, err := Inject([]byte(in), Options{Image: "registry.example.com/stager:1"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.YAMLToJSON(result.Output)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// withStatus adds a status to a Pod.
func withStatus(t *testing.T, pod []byte, status string) []byte {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal(pod, &o); err != nil {
		t.Fatal(err)
	}
	o["status"] = json.RawMessage(status)
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

const (
	asksWindow = `    stager.dev/in.train: "s3://b/train/ -> /data ? mode=window&size=1Gi"` + "\n"
	asksOutput = `    stager.dev/out.ckpt: "/out -> s3://b/runs/"` + "\n"
)

// What inject adds is found again, whatever the shape of the pod.
func TestReadPodsFindsInjectedContainers(t *testing.T) {
	for annotations, want := range map[string]string{
		asksWindow:              "stager-prefetch:/stager stager:/stager",
		asksWindow + asksOutput: "stager-prefetch:/stager stager:/stager",
		asksOutput:              "stager:/stager",
		`    stager.dev/in.code: "s3://b/code/ -> /code"` + "\n": "stager-prefetch:/stager",
		asksWindow + "    stager.dev/gate: none\n":               "stager:/stager",
		asksOutput + "    stager.dev/finalize: run\n":            "main:/run/stager-bin/stager",
	} {
		pods, err := ReadPods(podWith(t, annotations))
		if err != nil || len(pods) != 1 {
			t.Fatalf("%s: got %d pods, %v, want 1", annotations, len(pods), err)
		}
		var got []string
		for _, c := range pods[0].Containers {
			got = append(got, c.Name+":"+c.Program)
			if c.PlanFile != "" || c.Running || c.Logged {
				t.Errorf("%s: got %+v, want a container without a state whose plan is in its environment", annotations, c)
			}
		}
		if strings.Join(got, " ") != want || !pods[0].Requested || pods[0].Name != "train" {
			t.Errorf("%s: got %s of %q, want %s of train", annotations, got, pods[0].Name, want)
		}
	}
}

func TestReadPodsReadsStates(t *testing.T) {
	pod := podWith(t, asksWindow)
	for status, want := range map[string]string{
		`{"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "no node"}]}`: "Pending no node; prefetch false false ; sidecar false false ",
		`{"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}], "initContainerStatuses": [
			{"name": "stager", "state": {"running": {}}},
			{"name": "stager-prefetch", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}, "restartCount": 2}]}`: "Pending ; prefetch false true CrashLoopBackOff: back-off; sidecar true true ",
		`{"phase": "Running", "initContainerStatuses": [
			{"name": "stager", "state": {"running": {}}}, {"name": "stager-prefetch", "state": {"terminated": {"exitCode": 0}}}]}`: "Running ; prefetch false true ended with exit code 0; sidecar true true ",
		`{"phase": "Failed", "reason": "Evicted", "message": "out of disk", "initContainerStatuses": [{"name": "stager", "state": {"waiting": {}}}]}`: "Failed Evicted: out of disk; prefetch false false ; sidecar false false ",
	} {
		pods, err := ReadPods(withStatus(t, pod, status))
		if err != nil {
			t.Fatal(err)
		}
		p := pods[0]
		one := func(c RunningContainer) string { return fmt.Sprint(c.Running, c.Logged, " ", c.Reason) }
		got := fmt.Sprintf("%s %s; prefetch %s; sidecar %s", p.Phase, p.Reason, one(p.Containers[0]), one(p.Containers[1]))
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", status, got, want)
		}
	}
}

// Containers that people wrote by hand are found by the names of inject, with the file of their plan.
func TestReadPodsFindsPlanFiles(t *testing.T) {
	for container, want := range map[string]string{
		`{"name": "stager", "args": ["run", "-f", "/etc/plan.yaml", "--listen", ":9090"]}`:     "/stager /etc/plan.yaml",
		`{"name": "stager", "args": ["run", "--file=/etc/plan.yaml"]}`:                         "/stager /etc/plan.yaml",
		`{"name": "stager", "command": ["/opt/stager", "run"], "args": ["--file", "p"]}`:       "/opt/stager p",
		`{"name": "stager", "args": ["run", "--", "sh", "-f", "x"]}`:                           "/stager ",
		`{"name": "m", "command": ["/run/stager-bin/stager", "run", "-f", "p", "--", "a"]}`:    "/run/stager-bin/stager p",
		`{"name": "m", "command": ["/run/stager-bin/stager", "wrap", "--", "stager", "run"]}`:  "",
		`{"name": "main", "command": ["stager", "run"]}`:                                       "",
		`{"name": "stager", "command": ["sh", "-c", "exec /stager run -f p"], "args": ["-f"]}`: "/stager ",
	} {
		pods, err := ReadPods([]byte(`{"kind": "List", "items": [{"kind": "Pod", "spec": {"containers": [` + container + `]}}]}`))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, c := range pods[0].Containers {
			got += c.Program + " " + c.PlanFile
		}
		if got != want || pods[0].Requested {
			t.Errorf("%s: got %q, want %q", container, got, want)
		}
	}
}

func TestReadPodsRefusesOtherObjects(t *testing.T) {
	for _, text := range []string{``, `{"kind": "Job"}`, `[]`, `{"kind": "Pod", "spec": 7}`} {
		if pods, err := ReadPods([]byte(text)); err == nil {
			t.Errorf("%s: got %v, want an error", text, pods)
		}
	}
	if pods, err := ReadPods([]byte(`{"kind": "PodList", "items": []}`)); err != nil || len(pods) != 0 {
		t.Errorf("an empty list: got %v, %v", pods, err)
	}
}

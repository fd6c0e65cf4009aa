package jobspec

import (
	"strings"
	"testing"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// A restore in a user's container did not have the variables that identify node and job, so each
// node restored the newest step that it found.
func TestContainersThatRestoreKnowTheirNode(t *testing.T) {
	text := `{apiVersion: batch/v1, kind: Job, metadata: {name: x}, spec: {completions: 2, completionMode: Indexed, template: {spec: {
restartPolicy: Never,
initContainers: [
  {name: script, image: tools, command: [sh, -c, "/stager restore s3://b/ckpt/ /newest && true"]},
  {name: entrypoint, image: "registry.example/stager:1", args: [restore, "s3://b/ckpt/", /newest]},
  {name: own, image: tools, command: [stager, restore, "s3://b/ckpt/", /newest], envFrom: [{secretRef: {name: mine}}]},
  {name: other, image: tools, command: [sh, -c, "echo restore"]}],
containers: [{name: main, image: x, command: [a]}]}}}}`
	opts := Options{Plan: []byte(allNodesPlan)}
	result, err := Inject([]byte(text), opts)
	if err != nil {
		t.Fatal(err)
	}
	d := yamledit.Split(result.Output)[0]
	if err := yamledit.Parse(d); err != nil {
		t.Fatal(err)
	}
	o := objectsIn(d)[0]
	o.findTemplates("")
	spec := func(list, name string) *yamledit.Node { return o.templates[0].get(at("spec", list, "name="+name)) }
	for _, tt := range []struct {
		list, name    string
		knows, secret bool
	}{
		{"initContainers", "script", true, true},
		{"initContainers", "entrypoint", true, true},
		{"initContainers", "own", true, false},
		{"initContainers", "other", false, false},
		{"containers", "main", true, false},
	} {
		c := spec(tt.list, tt.name)
		for _, name := range []string{"STAGER_COUNT", jobUIDVariable, podUIDVariable} { // the kubelet sets JOB_COMPLETION_INDEX
			if got := c.Get("env").Item("name", name) != nil; got != tt.knows {
				t.Errorf("container %s has %s: %v, want %v", tt.name, name, got, tt.knows)
			}
		}
		if got := c.Get("env").Item("name", restoreSecrets) != nil; got != tt.secret {
			t.Errorf("container %s has %s: %v, want %v", tt.name, restoreSecrets, got, tt.secret)
		}
		mounts := ""
		for _, m := range c.Get("volumeMounts").All() {
			mounts += m.Get("mountPath").Text() + " "
		}
		if got := strings.Contains(mounts, "/writes "); got != tt.secret {
			t.Errorf("container %s mounts %s, want the output's Secret among them: %v", tt.name, mounts, tt.secret)
		}
	}
	holds(t, []byte(text), opts)
}

// The nodes need no agreement about an output that a single node saves.
func TestContainersOfSingleNodesStayAsTheyAre(t *testing.T) {
	text := `{apiVersion: batch/v1, kind: Job, metadata: {name: x}, spec: {template: ` + podOf + `}}`
	result, err := Inject([]byte(text), Options{Plan: []byte(strings.Replace(allNodesPlan, "nodes: all, ", "", 1))})
	if err != nil || strings.Contains(string(result.Output), jobUIDVariable) {
		t.Errorf("got %v, and %s in the object, want neither", err, jobUIDVariable)
	}
}

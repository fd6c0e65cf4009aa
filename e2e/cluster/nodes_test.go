package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// together is the checkpoint of all nodes of a job. It ends fast enough that a node is
// deleted while it sends: 1 MiB a second, and saveSlowly writes 12 MiB.
const (
	slowly = "plan-yaml: {apiVersion: stager.dev/v1alpha1, kind: StagePlan, metadata: {name: slow}, spec: {limits: {bandwidth: 1Mi}}}"

	together = "out.ckpt: /out -> $BUCKET/ckpt/ ? commit=checkpoint&nodes=all&deadline=30s"

	// saveTogether is a trainer of several nodes: each writes its part, of so many MiB, and
	// the first says when the step is complete.
	saveTogether = `i=$JOB_COMPLETION_INDEX
	save() { mkdir /out/step-$1.tmp && dd if=/dev/zero of=/out/step-$1.tmp/weights-$i bs=1M count=$2 2>/dev/null &&
	echo "node $i of step $1" >/out/step-$1.tmp/model-$i && mv /out/step-$1.tmp /out/step-$1 && stager commit ckpt /out/step-$1; }
	`
)

// severalNodes are jobs whose nodes save one checkpoint together.
var severalNodes = []row{
	{
		// Node 2 is deleted while all send their parts of step 2. Its replacement runs beside it
		// and is another member; the old pod has the time to bring its part. No checkpoint mixes
		// the two, and the four save the step after it together.
		name:        "four-nodes",
		annotations: []string{slowly, together},
		job:         "completions: 4\nparallelism: 4\ncompletionMode: Indexed\nbackoffLimit: 4\n", pod: "restartPolicy: Never\n",
		main: saveTogether + `echo begun; until test -e /tmp/go; do sleep 0.2; done
		test -e /tmp/later || { save 1 0; until test -e /tmp/two; do sleep 0.2; done; save 2 12; echo saved; until test -e /tmp/later; do sleep 0.2; done; }
		save 3 0`,
		do: func(t *testing.T, j *job) {
			pods := j.nodes(t, 4)
			j.letGo(t, pods...)
			j.whole(t, 1, 4) // before step 2 is there, which is saved instead where both wait
			j.touch(t, pods, "/tmp/two")
			j.said(t, "2", "saved")
			j.deletes(t, pods[2])
			j.until(t, "node 2 is replaced", func(ctx context.Context) bool {
				out, err := j.c.kubectl(ctx, "", "get", "pod", "-l", j.pods("2"), "-o", `jsonpath={range .items[*]}{.metadata.name} {end}`)
				for name := range strings.FieldsSeq(out) {
					if name != pods[2] && err == nil {
						pods[2] = name
						return true
					}
				}
				return false
			})
			j.viewed(t, pods) // what a node writes before belongs to the view before
			j.touch(t, pods, "/tmp/later", "/tmp/go")
		},
		also: func(t *testing.T, j *job) {
			j.whole(t, 3, 4)
			if s := j.step(2); s != nil { // the old pod was in time
				s.look(t, 2, 4)
			}
			j.restoredOfAll(t, 3, 4)
		},
	},
	{
		// A second Job has the destination of one that runs. It is refused, in words that its
		// user sees in kubectl logs and describe, and the first one's checkpoint stays.
		name:        "two-jobs",
		annotations: []string{together},
		job:         "completions: 2\nparallelism: 2\ncompletionMode: Indexed\nbackoffLimit: 0\n", pod: "restartPolicy: Never\n",
		main: saveTogether + `save 1 0; echo begun; until test -e /tmp/go; do sleep 0.2; done`,
		do: func(t *testing.T, j *job) {
			pods := j.nodes(t, 2)
			j.whole(t, 1, 2)
			second := *j
			second.name = "two-jobs-second"
			second.submit(t, row{
				annotations: []string{together},
				job:         "completions: 2\nparallelism: 2\ncompletionMode: Indexed\nbackoffLimit: 0\n", pod: "restartPolicy: Never\n",
				main: saveTogether + `save 1 0; save 2 0; echo begun; while :; do sleep 1; done`,
			})
			others := second.nodes(t, 2)
			const want = "is alive and saves to s3://two-jobs/ckpt; give each job a destination of its own, such as with {job} in its URL"
			for _, pod := range others {
				second.until(t, "its user sees the refusal", func(ctx context.Context) bool {
					out, err := j.c.kubectl(ctx, "", "describe", "pod", pod)
					return err == nil && strings.Contains(out, want) && regexp.MustCompile(`Exit Code: +78\n`).MatchString(out)
				})
			}
			if _, err := j.c.kubectl(t.Context(), "", "delete", "job", second.name, "--cascade=foreground", "--wait=false"); err != nil {
				t.Fatal(err)
			}
			j.letGo(t, pods...)
		},
		ends: "Complete",
		also: func(t *testing.T, j *job) {
			j.whole(t, 1, 2)
			if text, err := j.stored("ckpt/step-00000002/COMMIT.json"); err == nil {
				t.Errorf("the second job saved step 2: %s", text)
			}
		},
	},
}

// nodes waits until the main containers of all indices have begun, and returns their pods
// by index.
func (j *job) nodes(t *testing.T, count int) (pods []string) {
	t.Helper()
	for i := range count {
		pods = append(pods, j.said(t, fmt.Sprint(i), "begun"))
	}
	return pods
}

// viewed waits until the sidecars of all pods are in one view, in which all of them are.
func (j *job) viewed(t *testing.T, pods []string) {
	t.Helper()
	last := regexp.MustCompile(`(?s).*msg="all nodes of the job have registered" [^\n]* view=([0-9a-f]+)`)
	j.until(t, "its nodes agree on their view", func(ctx context.Context) bool {
		views := make(map[string]bool)
		for _, pod := range pods {
			out, err := j.c.kubectl(ctx, "", "logs", pod, "-c", "stager")
			found := last.FindStringSubmatch(out)
			if err != nil || found == nil {
				return false
			}
			views[found[1]] = true
		}
		return len(views) == 1
	})
}

// savedStep is what the tests read of a COMMIT.json.
type savedStep struct {
	Nodes       int
	Provisional bool
	Group       struct {
		Count int
		Parts []string
	}
	Files []struct{ Node int }
}

// step returns the COMMIT.json of a step, or nil if there is none.
func (j *job) step(step int) *savedStep {
	var s savedStep
	text, err := j.stored(fmt.Sprintf("ckpt/step-%08d/COMMIT.json", step))
	if err != nil || json.Unmarshal([]byte(text), &s) != nil {
		return nil
	}
	return &s
}

// whole waits until a step is final, and looks whether it has a part of each node, in one save.
// Before, it may be provisional, without the files of a node that writes much later than the others.
func (j *job) whole(t *testing.T, step, nodes int) {
	t.Helper()
	var s *savedStep
	j.until(t, fmt.Sprintf("step %d is final", step), func(context.Context) bool {
		s = j.step(step)
		return s != nil && !s.Provisional
	})
	s.look(t, step, nodes)
}

// look fails unless a step is one save of all nodes: with both files of each, or, if it is
// provisional, also with none.
func (s *savedStep) look(t *testing.T, step, nodes int) {
	t.Helper()
	if s.Nodes != nodes || len(s.Group.Parts) != nodes || s.Group.Count != nodes {
		t.Errorf("step %d is of %d nodes and joins %d parts, want %d", step, s.Nodes, len(s.Group.Parts), nodes)
	}
	files := make(map[int]int)
	for _, f := range s.Files {
		files[f.Node]++
	}
	for node := range nodes {
		if got := files[node]; got != 2 && (got != 0 || !s.Provisional) {
			t.Errorf("step %d has %d files of node %d, want 2", step, got, node)
		}
	}
}

// restoredOfAll restores a step of all nodes, as a user does who has one machine.
func (j *job) restoredOfAll(t *testing.T, step, nodes int) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "all")
	if out, err := j.stager(t, "restore", "-q", "s3://"+j.bucket+"/ckpt/", dir); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want, got := make(map[string]string), make(map[string]string)
	for i := range nodes {
		name := fmt.Sprintf("model-%d", i)
		want[name] = fmt.Sprintf("node %d of step %d\n", i, step)
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			text = []byte(err.Error())
		}
		got[name] = string(text)
	}
	if !maps.Equal(got, want) {
		t.Errorf("restored %q, want %q", got, want)
	}
}

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// restartedSet is a JobSet of two Jobs, each of one pod, which are the two nodes of a
// checkpoint. Its trainers begin with the newest step, as all nodes agree, and wait for each
// other before they save, as trainers of one job do. In the first attempt they save steps 1 and 2
// and go on; in the next one they save step 3.
const restartedSet = `apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: $NAME}
spec:
  failurePolicy: {maxRestarts: 3}
  replicatedJobs:
  - name: worker
    replicas: 2
    template:
      spec:
        backoffLimit: 0
        template:
          metadata:
            annotations:
              stager.dev/plan-yaml: "$SLOWLY"
              stager.dev/out.ckpt: "$TOGETHER&secret=$SECRET"
          spec:
            restartPolicy: Never
            containers:
            - name: main
              image: $IMAGE
              imagePullPolicy: Never
              resources: {limits: {memory: 64Mi}, requests: {cpu: 10m, memory: 16Mi}}
              envFrom: [{secretRef: {name: $SECRET}}]
              env:
              - {name: AWS_ENDPOINT_URL_S3, value: "$ENDPOINT"}
              - {name: AWS_REGION, value: "$REGION"}
              command:
              - sh
              - -c
              - |
                i=$STAGER_INDEX
                save() { mkdir /out/step-$1.tmp && dd if=/dev/zero of=/out/step-$1.tmp/weights-$i bs=1M count=$2 2>/dev/null &&
                echo "node $i of step $1" >/out/step-$1.tmp/model-$i && mv /out/step-$1.tmp /out/step-$1 && stager commit ckpt /out/step-$1; }
                meet() { mkdir -p /tmp/meet && echo here >/tmp/meet/node-$i && stager push /tmp/meet s3://$NAME/$1/ &&
                until test "$(stager ls s3://$NAME/$1/ | grep -c node-)" = 2; do sleep 0.2; done; }
                stager restore --optional s3://$NAME/ckpt/ /tmp/before || exit 3
                if test -e /tmp/before; then
                  echo "began with: $(cat /tmp/before/model-0), $(cat /tmp/before/model-1)"
                  meet second && save 3 0 && exit 0
                fi
                meet first && save 1 0; echo begun; until test -e /tmp/go; do sleep 0.2; done
                save 2 12; echo saved; while :; do sleep 1; done
`

// A JobSet is restarted when a pod of it fails: all its Jobs are deleted and created again,
// with other UIDs. Node 1 is killed while both nodes send their parts of step 2. The pods
// of the restarted set belong to the same job, begin with one step that is whole, and save
// the next one together. The controller is the project's own.
//
// It runs with STAGER_TRIAL=full alone, because it builds the controller of JobSets.
func restartedJobSet(t *testing.T, c *cluster, s3 *servers.S3) {
	if !withJobSets() {
		live.Require(t, "trial", errors.New("a JobSet that restarts is tried by hand, with STAGER_TRIAL=full"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stop, err := c.startJobSets(ctx)
	if stop != nil {
		t.Cleanup(func() {
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	j := newJob(t, c, s3, "restarted-jobset", 0)
	j.jobSet = true
	t.Cleanup(func() {
		if t.Failed() {
			j.tell(t)
		}
		_, _ = c.kubectl(context.Background(), "", "delete", j.kind(), j.name, "--wait=false") // all ends anyway
	})
	c.apply(t, c.inject(t, strings.NewReplacer(
		"$NAME", j.name, "$SLOWLY", strings.TrimPrefix(slowly, "plan-yaml: "), "$TOGETHER", strings.TrimPrefix(strings.ReplaceAll(together, "$BUCKET", "s3://"+j.bucket), "out.ckpt: "),
		"$SECRET", secret, "$IMAGE", trainerImage, "$ENDPOINT", s3.Endpoint, "$REGION", s3.Region).Replace(restartedSet),
		"--image", stagerImage, "--image-pull-policy", "Never",
		"--container-env", "AWS_ENDPOINT_URL_S3="+s3.Endpoint, "--container-env", "AWS_REGION="+s3.Region))

	pods := j.nodes(t, 2)
	j.whole(t, 1, 2)
	job := j.member(t)
	left := j.follow(t, pods[0], "stager")
	j.letGo(t, pods...)
	j.said(t, "1", "saved")
	j.kill(t, pods[1])
	began := j.completed(t)
	t.Logf("node 0's stager of the attempt before logged\n%s", left())

	want := fmt.Sprintf("began with: node 0 of step %[1]d, node 1 of step %[1]d", began)
	for i := range 2 {
		said, err := j.c.kubectl(t.Context(), "", "logs", "-l", j.pods(fmt.Sprint(i)), "-c", "main", "--tail=-1")
		if err != nil || !strings.Contains(said, want) {
			t.Errorf("node %d logged %q, %v, want %q", i, said, err, want)
		}
	}
	j.whole(t, 1, 2)
	if began > 1 {
		j.whole(t, began, 2)
	}
	j.whole(t, 3, 2)
	j.restoredOfAll(t, 3, 2)
	if again := j.member(t); !maps.Equal(again, job) {
		t.Errorf("the nodes registered as of job %v, and after the restart as of %v", job, again)
	}
	for _, args := range [][]string{{"describe", j.kind(), j.name}, {"logs", "-l", j.pods(""), "--all-containers", "--prefix", "--tail=40"}} {
		out, err := c.kubectl(t.Context(), "", args...)
		t.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// completed waits until the JobSet has been restarted once and is complete, and returns the
// step that node 0 began with.
func (j *job) completed(t *testing.T) (step int) {
	t.Helper()
	var set struct {
		Status struct {
			Restarts      int
			TerminalState string
		}
	}
	j.until(t, "is complete", func(ctx context.Context) bool {
		out, err := j.c.kubectl(ctx, "", "get", j.kind(), j.name, "-o", "json")
		return err == nil && json.Unmarshal([]byte(out), &set) == nil && set.Status.TerminalState != ""
	})
	if set.Status.TerminalState != "Completed" || set.Status.Restarts != 1 {
		t.Errorf("the JobSet ended %s after %d restarts, want Completed after 1", set.Status.TerminalState, set.Status.Restarts)
	}
	said, err := j.c.kubectl(t.Context(), "", "logs", "-l", j.pods("0"), "-c", "main", "--tail=-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(regexp.MustCompile(`of step \d+`).FindString(said), "of step %d", &step); err != nil {
		t.Errorf("node 0 did not begin with a step: %q", said)
	}
	return step
}

// member returns which job each node registered as a member of, by its index.
func (j *job) member(t *testing.T) map[int]string {
	t.Helper()
	jobs := make(map[int]string)
	for i := range 2 {
		var record struct{ Job string }
		text, err := j.stored(fmt.Sprintf("ckpt/nodes/members/%06d.json", i))
		if err == nil {
			err = json.Unmarshal([]byte(text), &record)
		}
		if err != nil || record.Job == "" {
			t.Errorf("the record of node %d: %v: %s", i, err, text)
		}
		jobs[i] = record.Job
	}
	return jobs
}

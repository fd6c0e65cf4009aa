package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/e2e/servers"
)

// asksByPlugin asks the stager of a job by the plugin of kubectl, at work and after its end.
func asksByPlugin(t *testing.T, c *cluster, s3 *servers.S3) {
	j := newJob(t, c, s3, "plugin", 0)
	shard := filepath.Join(t.TempDir(), "shard-0.tar")
	if err := os.WriteFile(shard, make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := j.stager(t, "push", "-q", shard, "s3://plugin/data/"); err != nil { // which has the server compute its ETag
		t.Fatal(err)
	}
	j.submit(t, row{
		annotations: []string{"in.train: $BUCKET/data/ -> /data/train ? mode=window&size=64Mi", checkpoint}, pod: "restartPolicy: Never\n",
		main: save + "save 1; echo saved; until test -e /tmp/go; do sleep 0.1; done",
	})
	pod := j.said(t, "", "saved")
	j.committed(t, "ckpt/", 1, 0)
	plugin{job: j}.atWork(t, pod)
	j.letGo(t, pod)
	if condition, _ := j.wait(t).end(); condition != "Complete" {
		t.Errorf("the Job ended %s, want Complete", condition)
	}
	plugin{job: j}.afterwards(t, pod)
}

// plugin runs "kubectl stager" as a user of the cluster.
type plugin struct {
	*job

	env []string // besides
}

// expect runs a command, which ends with this code and prints these words.
func (p plugin) expect(t *testing.T, code int, line string, words ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(p.c.bin, "kubectl"), append([]string{"stager"}, strings.Fields(line)...)...)
	cmd.Env = p.c.environ(p.env...)
	out, err := cmd.CombinedOutput()
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	for _, w := range words {
		if !strings.Contains(string(out), w) {
			t.Errorf("kubectl stager %s: got\n%s\nwant %q", line, out, w)
		}
	}
	if got != code {
		t.Errorf("kubectl stager %s: got the exit code %d, want %d:\n%s", line, got, code, out)
	}
	return string(out)
}

// atWork asks the stager of a running pod.
func (p plugin) atWork(t *testing.T, pod string) {
	t.Helper()
	p.expect(t, 0, "status "+pod, "plugin: running", "input train", "output ckpt")
	p.expect(t, 0, "status -n default job/plugin -o json", `"phase": "running"`)
	p.expect(t, 0, "status -l job-name=plugin --context="+p.currentContext(t), "plugin: running")
	p.expect(t, 0, "logs "+pod, "==> stager-prefetch <==", "==> stager <==", "a checkpoint is safe")
	p.expect(t, 0, "logs --tail 1 -c stager "+pod, "msg=")
	p.expect(t, 0, "check --dry-run "+pod, "input train, from s3://plugin/data/", "would check s3://plugin/ckpt in a scratch directory")
	p.expect(t, 0, "check --read-only "+pod, "input train, from s3://plugin/data/", "output ckpt, to s3://plugin/ckpt/", "one response")
	t.Logf("after a check beside it: %v", p.usage(t, pod))
	p.sidecar(t, pod, 0, true) // a check beside it does not kill it

	p.expect(t, 66, "status no-such-pod", `pods "no-such-pod" not found`)
	p.expect(t, 66, "status job/no-such-job", "batch.kubernetes.io/job-name=no-such-job has no pods")
	p.expect(t, 66, "status -n no-such-namespace "+pod, "not found")
	p.expect(t, 78, "status --context=no-such-context "+pod, "no-such-context")
	p.expect(t, 64, "status -c main "+pod, "does not run stager; use stager-prefetch or stager")
	plugin{p.job, []string{"KUBECONFIG=/dev/null"}}.expect(t, 69, "status x", "kubectl: The connection to the server localhost:8080 was refused")

	p.c.apply(t, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: plain}, spec: {nodeSelector: {none: such}, containers: [{name: main, image: %q}]}}`, trainerImage))
	p.expect(t, 64, "status plain", "pod plain has no container of stager")
	p.c.apply(t, p.c.inject(t, `{apiVersion: v1, kind: Pod, metadata: {name: waits, annotations: {stager.dev/in.code: "s3://b/code/ -> /code"}},
		spec: {nodeSelector: {none: such}, containers: [{name: main, image: trainer}]}}`, "--image", stagerImage))
	p.until(t, "the scheduler has looked at a pod", func(ctx context.Context) bool {
		out, err := p.c.kubectl(ctx, "", "get", "pod", "waits", "-o", "jsonpath={.status.conditions[0].message}")
		return err == nil && out != ""
	})
	p.expect(t, 75, "status waits", "pod waits is Pending, and its stager has not started: 0/1 nodes are available")
	p.expect(t, 75, "logs waits", "pod waits is Pending")
	p.deletes(t, "plain")
	p.deletes(t, "waits")
}

// afterwards asks about a pod that has ended.
func (p plugin) afterwards(t *testing.T, pod string) {
	t.Helper()
	p.expect(t, 69, "status "+pod, "pod "+pod+" has ended (Succeeded); kubectl stager logs "+pod+" prints what its stager logged")
	p.expect(t, 0, "logs "+pod, "==> stager <==", "a checkpoint is safe")
}

func (p plugin) currentContext(t *testing.T) string {
	t.Helper()
	out, err := p.c.kubectl(t.Context(), "", "config", "current-context")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

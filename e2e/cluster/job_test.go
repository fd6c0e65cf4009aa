package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stager-dev/stager/e2e/servers"
)

// job is a Job that asks for stager by annotations, in a bucket of its own.
type job struct {
	c  *cluster
	s3 *servers.S3

	name    string
	bucket  string
	objects string // the bucket's directory
	jobSet  bool   // a JobSet, in which an index is that of one of its Jobs
}

// secret is what the annotations call the store's credentials.
const secret = "s3"

// startNodeAndStore starts what jobs need besides the API server.
func startNodeAndStore(t *testing.T, c *cluster) *servers.S3 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := c.startNode(ctx); err != nil {
		t.Fatal(err)
	}
	s3, err := servers.StartS3(ctx, servers.S3Options{Host: nodeIP, Dir: c.file("s3")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s3.Close() })
	c.apply(t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {pod-security.kubernetes.io/enforce: restricted}}}", strict))
	services, end := context.WithCancel(context.Background())
	t.Cleanup(end)
	if err := c.forward(services, apiServerIP+":443", func() []string { return []string{"127.0.0.1:6443"} }); err != nil {
		t.Fatal(err)
	}
	c.serveNames(t)
	for _, namespace := range []string{"default", strict} {
		c.apply(t, fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: %s, namespace: %s}, stringData: {AWS_ACCESS_KEY_ID: %q, AWS_SECRET_ACCESS_KEY: %q}}`,
			secret, namespace, s3.AccessKey, s3.SecretKey))
	}
	return s3
}

func (c *cluster) apply(t *testing.T, text string) {
	t.Helper()
	if _, err := c.kubectl(t.Context(), text, "apply", "--validate=strict", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// newJob makes the bucket of a job, with objects in it, each of size bytes that begin
// with its name.
func newJob(t *testing.T, c *cluster, s3 *servers.S3, name string, size int, objects ...string) *job {
	t.Helper()
	j := &job{c: c, s3: s3, name: name, bucket: name, objects: filepath.Join(c.file("s3"), "objects", name)}
	if err := os.MkdirAll(filepath.Join(j.objects, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		file := filepath.Join(j.objects, "data", o)
		if err := errors.Join(os.WriteFile(file, []byte(o), 0o600), os.Truncate(file, int64(size))); err != nil {
			t.Fatal(err)
		}
	}
	return j
}

// submit injects stager into the row's Job, as a user does, and creates it.
func (j *job) submit(t *testing.T, r row) {
	t.Helper()
	var annotations, script strings.Builder
	for _, a := range r.annotations {
		key, value, _ := strings.Cut(a, ": ")
		if strings.Contains(value, "$BUCKET") {
			value = strings.ReplaceAll(value, "$BUCKET", "s3://"+j.bucket) + "&secret=" + secret
		}
		fmt.Fprintf(&annotations, "        stager.dev/%s: %q\n", key, value)
	}
	for line := range strings.Lines(strings.TrimSpace(r.main)) {
		script.WriteString("            " + strings.TrimSpace(line) + "\n")
	}
	if !strings.Contains(r.job, "backoffLimit:") {
		r.job += "backoffLimit: 3\n"
	}
	manifest := fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: %s}
spec:
%s  template:
    metadata:
      annotations:
%s    spec:
%s      containers:
      - name: main
        image: %s
        imagePullPolicy: Never
%s        resources: {limits: {memory: 64Mi}, requests: {cpu: 10m, memory: 16Mi}}
        envFrom: [{secretRef: {name: %s}}]
        env:
        - {name: AWS_ENDPOINT_URL_S3, value: %q}
        - {name: AWS_REGION, value: %q}
        - {name: BUCKET, value: %q}
        - {name: FAILURES, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['batch.kubernetes.io/job-index-failure-count']"}}}
        command:
          - sh
          - -c
          - |
%s`, j.name, indent("  ", r.job), annotations.String(), indent("      ", r.pod), trainerImage, indent("        ", r.container),
		secret, j.s3.Endpoint, j.s3.Region, "s3://"+j.bucket, script.String())
	j.c.apply(t, j.c.inject(t, manifest, append([]string{
		"--image", stagerImage, "--image-pull-policy", "Never",
		"--container-env", "AWS_ENDPOINT_URL_S3=" + j.s3.Endpoint, "--container-env", "AWS_REGION=" + j.s3.Region,
	}, r.inject...)...))
	t.Cleanup(func() {
		if t.Failed() {
			j.tell(t)
		}
		_, _ = j.c.kubectl(context.Background(), "", "delete", "job", j.name, "--wait=false") // all ends anyway
	})
}

func indent(by, lines string) string {
	var b strings.Builder
	for line := range strings.Lines(lines) {
		b.WriteString(by + strings.TrimRight(line, "\n") + "\n")
	}
	return b.String()
}

// jobStatus is what the tests look at of a Job.
type jobStatus struct {
	Failed     int
	Conditions []struct{ Type, Status, Reason string }
}

// end is the condition that ends a Job, Complete or Failed, with its reason; "" as long
// as there is none.
func (s jobStatus) end() (condition, reason string) {
	for _, c := range s.Conditions {
		if c.Status == "True" && (c.Type == "Complete" || c.Type == "Failed") {
			return c.Type, c.Reason
		}
	}
	return "", ""
}

// wait waits until the Job is over, with all its pods.
func (j *job) wait(t *testing.T) (s jobStatus) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	err := j.c.until(ctx, "job "+j.name+" is over", func() bool {
		out, err := j.c.kubectl(ctx, "", "get", "job", j.name, "-o", "json")
		var object struct{ Status jobStatus }
		if err != nil || json.Unmarshal([]byte(out), &object) != nil {
			return false
		}
		s = object.Status
		condition, _ := s.end()
		return condition != ""
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pods selects those of one index of the job, or of all for "".
func (j *job) pods(index string) string {
	all, one := "job-name="+j.name, ",batch.kubernetes.io/job-completion-index="+index
	if j.jobSet {
		all, one = "jobset.sigs.k8s.io/jobset-name="+j.name, ",jobset.sigs.k8s.io/job-index="+index
	}
	if index == "" {
		return all
	}
	return all + one
}

// kind is the resource that the job is.
func (j *job) kind() string {
	if j.jobSet {
		return jobSetResource
	}
	return "job"
}

// said waits until the main container of an index says something, and returns its
// pod's name.
func (j *job) said(t *testing.T, index, what string) string {
	t.Helper()
	j.until(t, "it says "+what, func(ctx context.Context) bool {
		out, err := j.c.kubectl(ctx, "", "logs", "-l", j.pods(index), "-c", "main", "--tail=-1")
		return err == nil && strings.Contains(out, what)
	})
	pod, err := j.c.kubectl(t.Context(), "", "get", "pod", "-l", j.pods(index), "-o", "jsonpath={.items[0].metadata.name}")
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// until waits for something that the job does.
func (j *job) until(t *testing.T, what string, is func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := j.c.until(ctx, "of job "+j.name+" "+what, func() bool { return is(ctx) }); err != nil {
		t.Fatal(err)
	}
}

// committed waits until a step of a destination exists, as the attempt's.
func (j *job) committed(t *testing.T, destination string, step, attempt int) {
	t.Helper()
	j.until(t, fmt.Sprintf("step %d is committed by attempt %d", step, attempt), func(context.Context) bool {
		var commit struct{ Attempt int }
		text, err := j.stored(fmt.Sprintf("%sstep-%08d/COMMIT.json", destination, step))
		return err == nil && json.Unmarshal([]byte(text), &commit) == nil && commit.Attempt == attempt
	})
}

// deletes deletes a pod, as an eviction does; its end is not waited for.
func (j *job) deletes(t *testing.T, pod string, flags ...string) {
	t.Helper()
	if _, err := j.c.kubectl(t.Context(), "", append([]string{"delete", "pod", pod, "--wait=false"}, flags...)...); err != nil {
		t.Fatal(err)
	}
}

// letGo lets main containers go on that wait for /tmp/go.
func (j *job) letGo(t *testing.T, pods ...string) {
	t.Helper()
	j.touch(t, pods, "/tmp/go")
}

// touch makes empty files in the main containers of pods, once those run: the sidecars are there before
// them. It does so in all at once: on a busy machine one takes 10 s, and nodes of a job wait for each
// other no longer than the deadline of their outputs.
func (j *job) touch(t *testing.T, pods []string, files ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	errs := make([]error, len(pods))
	var all sync.WaitGroup
	for i, pod := range pods {
		all.Go(func() {
			errs[i] = j.c.until(ctx, "container main of pod "+pod+" takes files", func() bool {
				_, err := j.c.kubectl(ctx, "", append([]string{"exec", pod, "-c", "main", "--", "touch"}, files...)...)
				return err == nil
			})
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// follow listens to a container, of which nothing can be asked when its pod is gone. What it
// returns waits for the container's end and returns what it said.
func (j *job) follow(t *testing.T, pod, container string) (all func() string) {
	t.Helper()
	var said strings.Builder
	cmd := j.c.admins(t.Context(), "", "logs", "-f", pod, "-c", container, "--request-timeout=0")
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() string {
		_ = cmd.Wait() // it ends with the container, in whatever way
		return said.String()
	}
}

// kill kills the main container of a pod as the kernel does, without a signal that it
// could hear.
func (j *job) kill(t *testing.T, pod string) {
	t.Helper()
	var id string
	j.until(t, "the kubelet reports the container", func(ctx context.Context) (known bool) {
		out, err := j.c.kubectl(ctx, "", "get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].containerID}")
		id, known = strings.CutPrefix(out, "containerd://")
		return err == nil && known
	})
	if _, err := j.c.ctr(t.Context(), "-n", "k8s.io", "tasks", "kill", "-s", "SIGKILL", id); err != nil {
		t.Fatal(err)
	}
}

// sidecar is what the kubelet reports of a pod's sidecar.
type sidecar struct {
	RestartCount int
	ContainerID  string
	State        struct{ Running *struct{} }
}

// sidecar waits until a pod's sidecar has been started again so often and is, or is not,
// running.
func (j *job) sidecar(t *testing.T, pod string, restarts int, running bool) (s sidecar) {
	t.Helper()
	j.until(t, fmt.Sprintf("the sidecar, restarted %d times, is running: %v", restarts, running), func(ctx context.Context) bool {
		out, err := j.c.kubectl(ctx, "", "get", "pod", pod, "-o", `jsonpath={.status.initContainerStatuses[?(@.name=="stager")]}`)
		s = sidecar{}
		return err == nil && json.Unmarshal([]byte(out), &s) == nil && s.RestartCount == restarts && (s.State.Running != nil) == running
	})
	return s
}

// killSidecar kills the sidecar of a pod that has been started again so often, as the
// kernel does when it is out of memory, and waits until the kubelet knows.
func (j *job) killSidecar(t *testing.T, pod string, restarts int) {
	t.Helper()
	s := j.sidecar(t, pod, restarts, true)
	if _, err := j.c.ctr(t.Context(), "-n", "k8s.io", "tasks", "kill", "-s", "SIGKILL", strings.TrimPrefix(s.ContainerID, "containerd://")); err != nil {
		t.Fatal(err)
	}
	j.until(t, "the sidecar is gone", func(ctx context.Context) bool {
		out, err := j.c.kubectl(ctx, "", "get", "pod", pod, "-o", `jsonpath={.status.initContainerStatuses[?(@.name=="stager")]}`)
		var now sidecar
		return err == nil && json.Unmarshal([]byte(out), &now) == nil && (now.State.Running == nil || now.ContainerID != s.ContainerID)
	})
}

// restored is the model of the newest checkpoint that the store has, as a user gets it
// back.
func (j *job) restored(t *testing.T) (string, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "back")
	if _, err := j.stager(t, "restore", "-q", "s3://"+j.bucket+"/ckpt/", dir); err != nil {
		return "", err
	}
	model, err := os.ReadFile(filepath.Join(dir, "model"))
	return string(model), err
}

// stager runs the program as a user of the store does.
func (j *job) stager(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(j.c.bin, "stager"), args...)
	cmd.Env = append(os.Environ(), j.s3.Env()...)
	return output(cmd)
}

// stored is the text of an object in the job's bucket.
func (j *job) stored(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(j.objects, filepath.FromSlash(name)))
	return string(text), err
}

// tell shows what is known of a job that went another way.
func (j *job) tell(t *testing.T) {
	for _, args := range [][]string{
		{"describe", j.kind(), j.name},
		{"describe", "pod", "-l", j.pods("")},
		{"logs", "-l", j.pods(""), "--all-containers", "--prefix", "--tail=30"},
	} {
		out, err := j.c.kubectl(context.Background(), "", args...)
		t.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

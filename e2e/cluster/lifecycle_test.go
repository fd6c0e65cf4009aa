package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// row is one way in which a job can end, and what must be in the store afterwards.
type row struct {
	name        string
	objects     []string // the dataset in the bucket
	size        int      // of each, in bytes
	annotations []string // of the pod template, without stager.dev/; $BUCKET is the row's own
	job, pod    string   // fields of the Job and of the pod
	inject      []string // flags of stager inject
	main        string   // what the main container does, as root in a shell

	do func(*testing.T, *job) // what happens to it while it runs

	ends   string // Complete or Failed
	reason string // the Job's; "": any
	failed int    // pods
	model  string // what the newest checkpoint holds; "": nothing is looked for
	also   func(*testing.T, *job)
}

const (
	dataset = "in.train: $BUCKET/data/ -> /data/train ? mode=prefetch"
	// The deadline is above the 10 s after which a checkpoint that nobody renamed before
	// stager's eyes counts as complete.
	checkpoint = "out.ckpt: /out -> $BUCKET/ckpt/ ? commit=checkpoint&deadline=20s"
	// atTheEnd is saved by a drain or after the main container, never before.
	atTheEnd = checkpoint + "&when=exit"
	results  = "out.res: /out -> $BUCKET/out/{index}/ ? commit=none&deadline=20s"
)

// save is a trainer that saves a checkpoint in one step.
const save = `save() { mkdir /out/step-$1.tmp && echo "weights $1" >/out/step-$1.tmp/model && mv /out/step-$1.tmp /out/step-$1; }
`

var lifecycle = []row{
	{
		name: "ends-well", objects: []string{"a", "b"}, size: 1 << 20,
		annotations: []string{dataset, checkpoint}, pod: "restartPolicy: Never\n",
		main: save + `test "$(cat /data/train/* | wc -c)" = 2097152 && save 1`,
		ends: "Complete", model: "weights 1\n",
	},
	{
		name: "exits-7", objects: []string{"a"}, size: 1,
		annotations: []string{dataset, atTheEnd}, job: "backoffLimit: 0\n", pod: "restartPolicy: Never\n",
		main: save + `save 1; exit 7`,
		ends: "Failed", failed: 1, model: "weights 1\n",
	},
	{
		// The sidecar hears SIGTERM when the main container has used up all of the
		// grace period; its preStop comes at once.
		name:        "deleted-ignores-term",
		annotations: []string{atTheEnd}, job: "backoffLimit: 0\n", pod: "restartPolicy: Never\n",
		main: save + `trap "" TERM; save 1; echo begun; while :; do sleep 1; done`,
		do: func(t *testing.T, j *job) {
			pod := j.said(t, "begun")
			if _, err := j.c.kubectl(t.Context(), "", "delete", "pod", pod, "--wait=false"); err != nil {
				t.Fatal(err)
			}
		},
		ends: "Failed", failed: 1, model: "weights 1\n",
	},
	{
		// Three more attempts would have been allowed.
		name:        "source-missing",
		annotations: []string{dataset}, pod: "restartPolicy: Never\n", inject: []string{"--job-policies"},
		main: `echo never`,
		ends: "Failed", reason: "PodFailurePolicy", failed: 1,
	},
	{
		name: "two-indexes", objects: []string{"s0", "s1", "s2", "s3", "s4"}, size: 1000,
		annotations: []string{dataset, results}, job: "completions: 2\nparallelism: 2\ncompletionMode: Indexed\n", pod: "restartPolicy: Never\n",
		main: `ls /data/train | while read s; do echo $s; done >/out/shards`,
		ends: "Complete",
		also: func(t *testing.T, j *job) {
			var all []string
			for _, index := range []string{"0", "1"} {
				shards, err := j.stored("out/" + index + "/shards")
				if err != nil {
					t.Error(err)
				}
				if len(strings.Fields(shards)) < 2 {
					t.Errorf("index %s had %q, want its part of 5", index, shards)
				}
				all = append(all, strings.Fields(shards)...)
			}
			slices.Sort(all)
			if want := []string{"s0", "s1", "s2", "s3", "s4"}; !slices.Equal(all, want) {
				t.Errorf("both together had %q, want %q", all, want)
			}
		},
	},
	{
		// The RAM disk is charged to the pod: 80 MiB in it do not fit into the 64 MiB
		// that the Job says itself.
		name: "ram-disk", objects: []string{"a", "b"}, size: 40 << 20,
		annotations: []string{dataset + "&medium=memory&size=90Mi", results}, pod: "restartPolicy: Never\n", inject: []string{"--adjust-memory"},
		main: `set -e
		while read d at type rest; do case $at in /data/train) echo $type >/out/type;; esac; done </proc/mounts
		for epoch in 1 2; do cat /data/train/a /data/train/b | wc -c >/out/bytes; done`,
		ends: "Complete",
		also: func(t *testing.T, j *job) {
			for name, want := range map[string]string{"out/0/type": "tmpfs\n", "out/0/bytes": "83886080\n"} {
				if got, err := j.stored(name); err != nil || got != want {
					t.Errorf("%s holds %q, %v, want %q", name, got, err, want)
				}
			}
		},
	},
	{
		name:        "main-out-of-memory",
		annotations: []string{atTheEnd}, job: "backoffLimit: 0\n", pod: "restartPolicy: Never\n",
		main: save + `save 1; dd if=/dev/zero of=/dev/null bs=200M count=1`,
		ends: "Failed", failed: 1, model: "weights 1\n",
	},
	{
		// Init containers do not run again; the sidecar stays.
		name: "restarts-in-place", objects: []string{"a"}, size: 1,
		annotations: []string{dataset, checkpoint}, pod: "restartPolicy: OnFailure\n",
		main: save + `test -s /data/train/a || exit 3
		if test -e /out/again; then save 2; exit 0; fi
		save 1; touch /out/again; exit 1`,
		ends: "Complete", model: "weights 2\n",
	},
	{
		// stager is around the main container's command and hands its exit code on.
		name: "wrap-exits-7", objects: []string{"a"}, size: 1,
		annotations: []string{"finalize: wrap", dataset, atTheEnd}, job: "backoffLimit: 0\n", pod: "restartPolicy: Never\n",
		main: save + `test -s /data/train/a || exit 3
		save 1; exit 7`,
		ends: "Failed", failed: 1, model: "weights 1\n",
		also: func(t *testing.T, j *job) {
			const path = `jsonpath={.items[0].status.containerStatuses[0].state.terminated.exitCode}`
			if code, err := j.c.kubectl(t.Context(), "", "get", "pod", "-l", "job-name="+j.name, "-o", path); err != nil || code != "7" {
				t.Errorf("the main container ended with %q, %v, want 7", code, err)
			}
		},
	},
	{
		name:        "job-deadline",
		annotations: []string{atTheEnd}, job: "activeDeadlineSeconds: 20\n", pod: "restartPolicy: Never\n",
		main: save + `save 1; while :; do sleep 1; done`,
		ends: "Failed", reason: "DeadlineExceeded", model: "weights 1\n",
	},
	{
		// The volume of the window has a limit at which the kubelet evicts the pod.
		name: "window", objects: []string{"0.tar", "1.tar", "2.tar", "3.tar", "4.tar", "5.tar", "6.tar", "7.tar"}, size: 1 << 20,
		annotations: []string{"in.train: $BUCKET/data/ -> /data/train ? mode=window&size=3Mi", results}, pod: "restartPolicy: Never\n",
		main: `n=0
		while test $n -lt 8; do
		for p in /data/train/ready/*.tar; do
		test -e "$p" || continue
		wc -c <"$p" >>/out/sizes
		rm "$p" && n=$((n+1))
		done
		sleep 0.1
		done`,
		ends: "Complete",
		also: func(t *testing.T, j *job) {
			if got, err := j.stored("out/0/sizes"); err != nil || got != strings.Repeat("1048576\n", 8) {
				t.Errorf("the sizes read are %q, %v, want 8 times 1048576", got, err)
			}
		},
	},
}

// TestLifecycle runs each row on the node, with the release image, against an S3
// server that pods reach over their network.
func TestLifecycle(t *testing.T) {
	c := asked(t, oneNode)
	s3 := startNodeAndStore(t, c)
	t.Run("rows", func(t *testing.T) { // which ends when all of them have
		for _, r := range lifecycle {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				j := newJob(t, c, s3, r.name, r.size, r.objects...)
				j.submit(t, r)
				if r.do != nil {
					r.do(t, j)
				}
				r.check(t, j)
			})
		}
		runExamples(t, c, s3)
	})
}

// check waits for the job's end and compares.
func (r row) check(t *testing.T, j *job) {
	t.Helper()
	status := j.wait(t)
	condition, reason := status.end()
	if condition != r.ends || r.reason != "" && reason != r.reason {
		t.Errorf("the Job ended %s, %s, want %s, %s", condition, reason, r.ends, r.reason)
	}
	if r.failed != 0 && status.Failed != r.failed {
		t.Errorf("%d pods failed, want %d", status.Failed, r.failed)
	}
	if r.model != "" {
		dir, err := j.restored(t)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "model")); err != nil || string(got) != r.model {
			t.Errorf("the newest checkpoint holds %q, %v, want %q", got, err, r.model)
		}
	}
	if r.also != nil {
		r.also(t, j)
	}
}

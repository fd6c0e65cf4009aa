package cluster

import (
	"strings"
	"testing"
	"time"
)

// endings are the ways in which a pod ends, well or not.
var endings = []row{
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
		// stager is around the main container's command, beside a sidecar, and hands its exit
		// code on.
		name: "wrap-exits-7", objects: []string{"a"}, size: 1,
		annotations: []string{"finalize: wrap", dataset, atTheEnd}, job: "backoffLimit: 0\n", pod: "restartPolicy: Never\n",
		main: save + `test -s /data/train/a || exit 3
		save 1; exit 7`,
		ends: "Failed", failed: 1, model: "weights 1\n",
		also: func(t *testing.T, j *job) {
			const path = `jsonpath={.items[0].status.containerStatuses[0].state.terminated.exitCode}`
			if code, err := j.c.kubectl(t.Context(), "", "get", "pod", "-l", j.pods(""), "-o", path); err != nil || code != "7" {
				t.Errorf("the main container ended with %q, %v, want 7", code, err)
			}
		},
	},
	{
		// The third kill has the kubelet wait for 20 s and more, and the main container ends
		// meanwhile. Its pod would have succeeded, and its volume been removed, with nothing
		// in the store: stager, as the parent of its command, holds it.
		name:        "sidecar-killed",
		annotations: []string{atTheEnd}, job: "backoffLimit: 0\n", pod: "restartPolicy: Never\n",
		main: `echo begun; until test -e /tmp/go; do sleep 0.2; done
		mkdir /out/step-1.tmp && echo "weights 1" >/out/step-1.tmp/model && : >/out/step-1.tmp/.ready && mv /out/step-1.tmp /out/step-1`,
		do: func(t *testing.T, j *job) {
			pod := j.said(t, "", "begun")
			began := time.Now()
			for kills := range 3 {
				j.killSidecar(t, pod, kills)
			}
			j.sidecar(t, pod, 2, false) // in back-off
			t.Logf("killed three times within %s", time.Since(began).Round(time.Second))
			j.letGo(t, pod)
		},
		ends: "Complete", model: "weights 1\n",
	},
	{
		name:        "main-out-of-memory",
		annotations: []string{atTheEnd}, job: "backoffLimit: 0\n", pod: "restartPolicy: Never\n",
		main: save + `save 1; dd if=/dev/zero of=/dev/null bs=200M count=1`,
		ends: "Failed", failed: 1, model: "weights 1\n",
	},
	{
		// The sidecar hears SIGTERM when the main container has used up all of the grace
		// period; its preStop comes at once. When all is saved the main container's stager
		// ends the command, and nobody waits for the rest of the period.
		name:        "deleted-ignores-term",
		annotations: []string{atTheEnd}, job: "backoffLimit: 0\n", pod: "restartPolicy: Never\n",
		main: save + `trap "" TERM; save 1; echo begun; while :; do sleep 1; done`,
		do: func(t *testing.T, j *job) {
			pod := j.said(t, "", "begun")
			all := j.follow(t, pod, "main")
			j.deletes(t, pod)
			if said, want := all(), "command ignores SIGTERM and its outputs are saved"; !strings.Contains(said, want) {
				t.Errorf("stager in the main container did not say %q but\n%s", want, said)
			}
		},
		ends: "Failed", failed: 1, model: "weights 1\n",
	},
	{
		// 100 MiB at 1 MiB/s do not fit into the deadline, and still less into the 10 s
		// that the pod is given: stager says so at once, and what is not whole does not
		// exist.
		name: "grace-too-short",
		annotations: []string{
			"plan-yaml: {apiVersion: stager.dev/v1alpha1, kind: StagePlan, metadata: {name: slow}, spec: {limits: {bandwidth: 1Mi}}}",
			checkpoint,
		},
		job: "backoffLimit: 0\n", pod: "restartPolicy: Never\n",
		main: save + `save 1; echo begun; until test -e /tmp/go; do sleep 0.2; done
		mkdir /out/step-2.tmp; dd if=/dev/zero of=/out/step-2.tmp/model bs=1M count=100; mv /out/step-2.tmp /out/step-2
		echo saved; while :; do sleep 1; done`,
		do: func(t *testing.T, j *job) {
			pod := j.said(t, "", "begun")
			all := j.follow(t, pod, "stager")
			j.committed(t, "ckpt/", 1, 0)
			j.letGo(t, pod)
			j.said(t, "", "saved")
			j.deletes(t, pod, "--grace-period=10")
			if said, want := all(), "the newest checkpoint would be lost: use a longer grace period"; !strings.Contains(said, want) {
				t.Errorf("stager did not say %q but\n%s", want, said)
			}
		},
		ends: "Failed", failed: 1, model: "weights 1\n",
		also: func(t *testing.T, j *job) {
			if text, err := j.stored("ckpt/step-00000002/COMMIT.json"); err == nil {
				t.Errorf("step 2 exists, and nobody had the time to save it: %s", text)
			}
		},
	},
	{
		// 100 MiB at 2 MiB/s take 50 s, which is more than the 30 s that Kubernetes gives. The
		// grace period is what the volume needs at this rate, and neither that nor ten minutes.
		name: "grace-by-bandwidth",
		annotations: []string{
			"plan-yaml: {apiVersion: stager.dev/v1alpha1, kind: StagePlan, metadata: {name: slow}, spec: {limits: {bandwidth: 2Mi}}}",
			"out.ckpt: /out -> $BUCKET/ckpt/ ? commit=checkpoint&size=150Mi&minBandwidth=2Mi",
		},
		job: "backoffLimit: 0\n", pod: "restartPolicy: Never\n",
		main: `mkdir /out/step-1.tmp; echo "weights 1" >/out/step-1.tmp/model
		dd if=/dev/zero of=/out/step-1.tmp/optimizer bs=1M count=100; mv /out/step-1.tmp /out/step-1
		echo saved; while :; do sleep 1; done`,
		do: func(t *testing.T, j *job) {
			pod := j.said(t, "", "saved")
			const path, want = "jsonpath={.spec.terminationGracePeriodSeconds}", "115" // 75 s, quietPeriod and 30 s
			if got, err := j.c.kubectl(t.Context(), "", "get", "pod", pod, "-o", path); err != nil || got != want {
				t.Errorf("the grace period is %q, %v, want %s", got, err, want)
			}
			if text, err := j.stored("ckpt/step-00000001/COMMIT.json"); err == nil {
				t.Errorf("step 1 is saved before the pod is deleted, which shows nothing: %s", text)
			}
			j.deletes(t, pod)
		},
		ends: "Failed", failed: 1, model: "weights 1\n",
	},
	{
		name:        "job-deadline",
		annotations: []string{atTheEnd}, pod: "restartPolicy: Never\n",
		main: save + `save 1; echo begun; while :; do sleep 1; done`,
		do: func(t *testing.T, j *job) {
			j.said(t, "", "begun")
			if _, err := j.c.kubectl(t.Context(), "", "patch", "job", j.name, "--type=merge", "-p", `{"spec": {"activeDeadlineSeconds": 1}}`); err != nil {
				t.Fatal(err)
			}
		},
		ends: "Failed", reason: "DeadlineExceeded", model: "weights 1\n",
	},
	{
		// Three more attempts would have been allowed.
		name:        "source-missing",
		annotations: []string{dataset}, pod: "restartPolicy: Never\n", inject: []string{"--job-policies"},
		main: `echo never`,
		ends: "Failed", reason: "PodFailurePolicy", failed: 1,
	},
}

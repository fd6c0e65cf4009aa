package cluster

import (
	"strings"
	"testing"
)

// resuming are jobs that go on where they were.
var resuming = []row{
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
		// The trainer hears nothing of its end. It goes on with what the store has.
		name:        "killed-and-resumes",
		annotations: []string{checkpoint}, pod: "restartPolicy: OnFailure\n",
		main: save + resume + `resume ckpt/
		if test -e /tmp/before; then read weights before </tmp/before/model; save 3 "$before 3"; exit 0; fi
		save 1; save 2 "1 2"; echo begun; while :; do sleep 1; done`,
		do: func(t *testing.T, j *job) {
			pod := j.said(t, "", "begun")
			j.committed(t, "ckpt/", 2, 0)
			j.kill(t, pod)
		},
		ends: "Complete", model: "weights 1 2 3\n",
		also: func(t *testing.T, j *job) {
			const path = `jsonpath={.items[0].status.containerStatuses[0].restartCount}`
			if n, err := j.c.kubectl(t.Context(), "", "get", "pod", "-l", j.pods(""), "-o", path); err != nil || n != "1" {
				t.Errorf("the trainer was started again %q times, %v, want 1", n, err)
			}
		},
	},
	{
		// The pod that was deleted is still there when its replacement has saved the step,
		// and saves the same one after it. Its command handles SIGTERM and goes on: one that
		// ignored it would be killed, as everything is saved.
		name:        "older-attempt-is-late",
		annotations: []string{strings.Replace(checkpoint, "20s", "150s", 1) + "&conflict=overwrite"},
		job:         "completions: 1\ncompletionMode: Indexed\nbackoffLimitPerIndex: 1\n", pod: "restartPolicy: Never\n",
		main: save + `trap : TERM
		if test "$FAILURES" = 1; then save 1 "of the newer"; exit 0; fi
		echo begun; until test -e /tmp/go; do sleep 0.2; done; save 1 "of the older"`,
		do: func(t *testing.T, j *job) {
			pod := j.said(t, "", "begun")
			all := j.follow(t, pod, "stager")
			j.deletes(t, pod)
			j.committed(t, "ckpt/", 1, 1)
			j.letGo(t, pod)
			if said, want := all(), "attempt 1 wrote it, and this is attempt 0"; !strings.Contains(said, want) {
				t.Errorf("the older pod's stager did not say %q but\n%s", want, said)
			}
			j.committed(t, "ckpt/", 1, 1)
		},
		ends: "Complete", model: "weights of the newer\n",
	},
	{
		// Index 1 is deleted after five shards, with a checkpoint of four. Its replacement
		// goes on with the fifth: no shard is left out, and none comes twice.
		name: "deleted-mid-epoch", objects: shards(12), size: 1 << 20,
		annotations: []string{
			"in.train: $BUCKET/data/ -> /data/train ? mode=window&size=4Mi",
			"out.ckpt: /out -> $BUCKET/ckpt/{index}/ ? commit=checkpoint&deadline=20s",
			results,
		},
		job: indexed, pod: "restartPolicy: Never\n",
		main: `trap "exit 1" TERM
		stager restore -q --optional --rewind $BUCKET/ckpt/$JOB_COMPLETION_INDEX/ /tmp/before || exit 3
		touch /res/shards
		if test -e /tmp/before; then cp /tmp/before/model /res/resumed; cp /tmp/before/model /res/shards; fi
		n=$(wc -l </res/shards)
		while p=$(stager next train); do
		test "$(cat "$p" | wc -c)" = 1048576 && echo ${p##*-} >>/res/shards && stager ack "$p" || exit 4
		n=$((n + 1))
		test $((n % 2)) = 1 || { mkdir /out/step-$n && cp /res/shards /out/step-$n/model && stager commit ckpt /out/step-$n || exit 5; }
		test $n-$JOB_COMPLETION_INDEX != 5-1 || test -e /tmp/before || { echo half; while :; do sleep 0.2; done; }
		done`,
		do: func(t *testing.T, j *job) {
			pod := j.said(t, "1", "half")
			j.committed(t, "ckpt/1/", 4, 0)
			j.deletes(t, pod)
		},
		ends: "Complete",
		also: func(t *testing.T, j *job) {
			j.deliveredOnce(t, shards(12))
			resumed, err := j.stored("out/1/resumed")
			if err != nil || strings.Count(resumed, "\n") != 4 {
				t.Errorf("the replacement began with %q, %v, want the checkpoint of 4 shards", resumed, err)
			}
			if text, err := j.stored("out/1/shards"); err != nil || !strings.HasPrefix(text, resumed) {
				t.Errorf("the replacement ended with %q, %v, want it to go on from %q", text, err, resumed)
			}
			if text, err := j.stored("out/0/resumed"); err == nil {
				t.Errorf("index 0 began again, with %q; nobody had touched it", text)
			}
		},
	},
}

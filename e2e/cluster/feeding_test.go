package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// shards are the names of a dataset.
func shards(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%02d", i))
	}
	return names
}

// eachShard is a trainer that reads a window of shards of 1 MiB to its end: it notes the
// name of each, removes it, and does something.
func eachShard(do string) string {
	return `until test -e /data/train/ready/e0000.END; do
		for p in /data/train/ready/e0000-*; do
		test -e "$p" || continue
		test "$(cat "$p" | wc -c)" = 1048576 && echo ${p##*-} >>/res/shards && rm "$p" || exit 4
		` + do + `
		done
		sleep 0.1
		done`
}

// feeding are jobs that read, and what they have read.
var feeding = []row{
	{
		name: "two-indexes", objects: shards(5), size: 1000,
		annotations: []string{dataset, results}, job: indexed, pod: "restartPolicy: Never\n",
		main: `ls /data/train | while read s; do echo $s; done >/res/shards`,
		ends: "Complete",
		also: func(t *testing.T, j *job) { j.deliveredOnce(t, shards(5)) },
	},
	{
		name: "window-of-two-indexes", objects: shards(20), size: 1 << 20,
		annotations: []string{"in.train: $BUCKET/data/ -> /data/train ? mode=window&size=3Mi&parallel=2", results},
		job:         indexed, pod: "restartPolicy: Never\n",
		main: eachShard(":"),
		ends: "Complete",
		also: func(t *testing.T, j *job) { j.deliveredOnce(t, shards(20)) },
	},
	{
		// The volume of the window has a limit at which the kubelet evicts the pod.
		name: "window", objects: shards(8), size: 1 << 20,
		annotations: []string{"in.train: $BUCKET/data/ -> /data/train ? mode=window&size=3Mi", results}, pod: "restartPolicy: Never\n",
		main: eachShard(":"),
		ends: "Complete",
		also: func(t *testing.T, j *job) {
			if got, err := j.stored("out/0/shards"); err != nil || len(strings.Fields(got)) != 8 {
				t.Errorf("it has read %q, %v, want 8 shards", got, err)
			}
		},
	},
	{
		// The RAM disk is charged to the pod: 80 MiB in it do not fit into the 64 MiB
		// that the Job says itself.
		name: "ram-disk", objects: []string{"a", "b"}, size: 40 << 20,
		annotations: []string{dataset + "&medium=memory&size=90Mi", results}, pod: "restartPolicy: Never\n", inject: []string{"--adjust-memory"},
		main: `set -e
		while read d at type rest; do case $at in /data/train) echo $type >/res/type;; esac; done </proc/mounts
		for epoch in 1 2; do cat /data/train/a /data/train/b | wc -c >/res/bytes; done`,
		ends: "Complete",
		also: func(t *testing.T, j *job) {
			j.holds(t, map[string]string{"out/0/type": "tmpfs\n", "out/0/bytes": "83886080\n"})
		},
	},
	{
		// A window in a RAM disk is as full as it can be before the first shard is taken, with
		// 15 shards, as the journal has its room too, and more than the container's memory
		// limit passes through it. The limit
		// is that which inject has written.
		name: "ram-disk-window", objects: shards(40), size: 16 << 20,
		annotations: []string{"in.train: $BUCKET/data/ -> /data/train ? mode=window&size=256Mi&medium=memory&epochs=2", results}, pod: "restartPolicy: Never\n",
		main: `while read d at type rest; do case $at in /data/train) echo $type >/res/type;; esac; done </proc/mounts
		full() { set -- /data/train/ready/e*-*; test $# = 15; }
		until full; do sleep 0.1; done
		n=0
		until test -e /data/train/ready/e0001.END; do
		for p in /data/train/ready/e*-*; do
		test -e "$p" || continue
		test "$(cat "$p" | wc -c)" = 16777216 && rm "$p" || exit 4
		n=$((n + 1)); echo $n >/res/read
		done
		sleep 0.1
		done`,
		ends: "Complete",
		also: func(t *testing.T, j *job) {
			j.holds(t, map[string]string{"out/0/type": "tmpfs\n", "out/0/read": "80\n"})
			const path = `jsonpath={range .items[*].status.initContainerStatuses[*]}{.name} {.restartCount} {.state.terminated.reason}{"\n"}{end}`
			if got, err := j.c.kubectl(t.Context(), "", "get", "pod", "-l", j.pods(""), "-o", path); err != nil || got != "stager 0 Completed\nstager-install 0 Completed\nstager-prefetch 0 Completed\n" {
				t.Errorf("stager's containers: %q, %v, want all to end well, and never to be started again", got, err)
			}
			const limits = `jsonpath={.items[0].spec.initContainers[?(@.name=="stager")].resources.limits.memory} {.items[0].spec.volumes[?(@.name=="stager-train")].emptyDir.sizeLimit}`
			got, err := j.c.kubectl(t.Context(), "", "get", "pod", "-l", j.pods(""), "-o", limits)
			if err != nil {
				t.Error(err)
			}
			t.Logf("stager's memory limit and the RAM disk's: %s", got)
		},
	},
}

// holds compares objects of the job's bucket.
func (j *job) holds(t *testing.T, objects map[string]string) {
	t.Helper()
	for name, want := range objects {
		if got, err := j.stored(name); err != nil || got != want {
			t.Errorf("%s holds %q, %v, want %q", name, got, err, want)
		}
	}
}

// delivered checks that two indexes have read everything together, each a part of it.
// What they have read is returned, in order of the names.
func (j *job) delivered(t *testing.T, want []string) (all []string) {
	t.Helper()
	var parts [2][]string
	for i := range parts {
		text, err := j.stored(fmt.Sprintf("out/%d/shards", i))
		if err != nil {
			t.Error(err)
		}
		parts[i] = strings.Fields(text)
		all = append(all, parts[i]...)
	}
	for _, s := range parts[0] {
		if slices.Contains(parts[1], s) {
			t.Errorf("both had the shard %s: %q", s, parts)
		}
	}
	if len(parts[0]) < 2 || len(parts[1]) < 2 {
		t.Errorf("they had %q, want a part each", parts)
	}
	slices.Sort(all)
	if got := slices.Compact(slices.Clone(all)); !slices.Equal(got, want) {
		t.Errorf("both together had %q, want %q", got, want)
	}
	return all
}

// deliveredOnce checks besides that nothing came twice.
func (j *job) deliveredOnce(t *testing.T, want []string) {
	t.Helper()
	if all := j.delivered(t, want); len(all) != len(want) {
		t.Errorf("%q were read, want each once", all)
	}
}

package cluster

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// atWork is a job whose sidecar has something to do: 1 GiB comes through a window and is
// removed at once, and a checkpoint of 256 MiB goes. What stager asks for in its spec is
// to be what that takes.
var atWork = row{
	name: "at-work", objects: shards(64), size: 16 << 20,
	annotations: []string{"in.train: $BUCKET/data/ -> /data/train ? mode=window&size=256Mi", checkpoint}, pod: "restartPolicy: Never\n",
	main: `until test -e /data/train/ready/e0000.END; do
		for p in /data/train/ready/e0000-*; do
		test -e "$p" || continue
		test "$(cat "$p" | wc -c)" = 16777216 && rm "$p" || exit 4
		done
		sleep 0.1
		done
		mkdir /out/step-1.tmp; head -c 268435456 /dev/zero >/out/step-1.tmp/model; mv /out/step-1.tmp /out/step-1
		echo read; until test -e /tmp/go; do sleep 0.1; done`,
	do: func(t *testing.T, j *job) {
		pod := j.said(t, "", "read")
		j.committed(t, "ckpt/", 1, 0)
		const asked = `jsonpath={.spec.initContainers[?(@.name=="stager")].resources.requests.memory}`
		text, err := j.c.kubectl(t.Context(), "", "get", "pod", pod, "-o", asked)
		if err != nil {
			t.Fatal(err)
		}
		request := firstOf(t, text) << 20 // it stands there in Mi
		u := j.usage(t, pod)
		t.Logf("after 1 GiB in and 256 MiB out: %v", u)
		if u.resident > request {
			t.Errorf("stager had up to %d MiB, and asks for %s", u.resident>>20, text)
		}
		j.letGo(t, pod)
	},
	ends: "Complete",
}

// usage is what a sidecar has taken so far.
type usage struct {
	resident int64   // bytes that its process had at most
	charged  int64   // bytes that its control group had at most, with files that the kernel keeps as long as nobody needs the room
	cpu      float64 // seconds
}

func (u usage) String() string {
	return fmt.Sprintf("resident %d MiB at most, with cached files %d MiB, %.1f s of CPU", u.resident>>20, u.charged>>20, u.cpu)
}

// usage asks the kernel about a pod's sidecar, by either version of control groups.
func (j *job) usage(t *testing.T, pod string) (u usage) {
	t.Helper()
	const container = `jsonpath={.status.initContainerStatuses[?(@.name=="stager")].containerID}`
	id, err := j.c.kubectl(t.Context(), "", "get", "pod", pod, "-o", container)
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := j.c.ctr(t.Context(), "-n", "k8s.io", "tasks", "ls")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(tasks, strings.TrimPrefix(id, "containerd://"))
	pid := firstOf(t, rest)
	u.resident = 1024 * numberAfter(t, read(t, fmt.Sprintf("/proc/%d/status", pid)), "VmHWM:")
	groups := make(map[string]string) // directories by controller
	for line := range strings.Lines(read(t, fmt.Sprintf("/proc/%d/cgroup", pid))) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), ":")
		controllers, dir, _ := strings.Cut(line, ":")
		for controller := range strings.SplitSeq(controllers, ",") {
			groups[controller] = filepath.Join("/sys/fs/cgroup", controller, dir)
		}
	}
	if dir := groups["memory"]; dir != "" {
		u.charged = firstOf(t, read(t, filepath.Join(dir, "memory.max_usage_in_bytes")))
		u.cpu = float64(firstOf(t, read(t, filepath.Join(groups["cpuacct"], "cpuacct.usage")))) / 1e9
		return u
	}
	u.charged = firstOf(t, read(t, filepath.Join(groups[""], "memory.peak")))
	u.cpu = float64(numberAfter(t, read(t, filepath.Join(groups[""], "cpu.stat")), "usage_usec")) / 1e6
	return u
}

// numberAfter is the number behind a word.
func numberAfter(t *testing.T, text, word string) int64 {
	t.Helper()
	_, rest, ok := strings.Cut(text, word)
	if !ok {
		t.Fatalf("there is no %q in %q", word, text)
	}
	return firstOf(t, rest)
}

// firstOf is the number with which a text begins.
func firstOf(t *testing.T, text string) int64 {
	t.Helper()
	var n int64
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatalf("%.100q does not begin with a number: %v", text, err)
	}
	return n
}

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stager-dev/stager/e2e/servers"
)

// smaller makes a job of the examples fit onto the node, and its shards into memory.
var smaller = strings.NewReplacer(
	"cpu: 8, memory: 32Gi", "cpu: 10m, memory: 16Mi",
	"limits: {nvidia.com/gpu: 1}", "limits: {memory: 64Mi}",
	"        image: trainer\n", "        image: "+trainerImage+"\n        imagePullPolicy: Never\n",
	"size=200Gi", "size=64Mi", "size=20Gi", "size=64Mi", "size=30G", "size=4M", "deadline=5m", "deadline=20s",
	"s3://datasets/imagenet/train/", "s3://train-window/imagenet/train/", "s3://runs/", "s3://train-window/runs/",
	"claimName: datasets", "claimName: shared",
	"secret=s3-read", "secret="+secret, "secret=s3-write", "secret="+secret,
)

// runExamples runs examples as users do who have adapted them: other stores, other
// sizes, no GPU.
func runExamples(t *testing.T, c *cluster, s3 *servers.S3) {
	apply := func(t *testing.T, name string) *job {
		j := newJob(t, c, s3, name, 0)
		for i := range 16 {
			file := filepath.Join(j.objects, "imagenet", "train", fmt.Sprintf("%02d.tar", i))
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, make([]byte, 100_000+i), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		manifest := smaller.Replace(read(t, "../../examples/"+strings.TrimPrefix(name, "train-")+".yaml"))
		c.apply(t, c.inject(t, manifest, "--image", stagerImage, "--image-pull-policy", "Never",
			"--container-env", "AWS_ENDPOINT_URL_S3="+s3.Endpoint, "--container-env", "AWS_REGION="+s3.Region))
		t.Cleanup(func() {
			if t.Failed() {
				j.tell(t)
			}
			_, _ = c.kubectl(context.Background(), "", "delete", "job", name, "--wait=false") // all ends anyway
		})
		return j
	}

	// A claim's directory, on a node with the label that the job wants, comes to its disk.
	t.Run("nvme.yaml", func(t *testing.T) {
		t.Parallel()
		c.apply(t, fmt.Sprintf(`
{apiVersion: v1, kind: PersistentVolume, metadata: {name: shared}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadOnlyMany], storageClassName: "", hostPath: {path: %q}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: shared}, spec: {accessModes: [ReadOnlyMany], storageClassName: "", resources: {requests: {storage: 1Gi}}}}
`, filepath.Join(c.file("s3"), "objects", "train-nvme")))
		if _, err := c.kubectl(t.Context(), "", "label", "node", "node1", "node.example.com/disk=nvme"); err != nil {
			t.Fatal(err)
		}
		j := apply(t, "train-nvme")
		if condition, reason := j.wait(t).end(); condition != "Complete" {
			t.Errorf("the Job ended %s, %s, want Complete", condition, reason)
		}
		if said, err := c.kubectl(t.Context(), "", "logs", "job/train-nvme", "-c", "main"); err != nil || !strings.Contains(said, "epoch 2 had 16 shards\ndone at step 48") {
			t.Errorf("the trainer said %q, %v, want three epochs of 16 shards", said, err)
		}
	})

	// Two pods, three epochs each, through a window: each has its half, the same in all
	// epochs, and saves what it had.
	t.Run("window.yaml", func(t *testing.T) {
		t.Parallel()
		j := apply(t, "train-window")
		if condition, reason := j.wait(t).end(); condition != "Complete" {
			t.Errorf("the Job ended %s, %s, want Complete", condition, reason)
		}
		had := make(map[string]string) // shard → index
		for _, index := range []string{"0", "1"} {
			dir := filepath.Join(t.TempDir(), "back")
			cmd := exec.CommandContext(t.Context(), filepath.Join(c.bin, "stager"), "restore", "-q", "s3://train-window/runs/train-window/"+index+"/", dir)
			cmd.Env = append(os.Environ(), s3.Env()...)
			if _, err := output(cmd); err != nil {
				t.Fatal(err)
			}
			if state := read(t, filepath.Join(dir, "state")); state != "24 2\n" {
				t.Errorf("the newest checkpoint of %s has the state %q, want step 24 of epoch 2", index, state)
			}
			for line := range strings.Lines(read(t, filepath.Join(dir, "shards"))) {
				_, shard, _ := strings.Cut(strings.TrimSpace(line), "  ")
				if had[shard] != "" {
					t.Errorf("%s was trained on by %s and %s", shard, had[shard], index)
				}
				had[shard] = index
			}
		}
		if len(had) != 16 {
			t.Errorf("both together had %q, want 16 shards", slices.Sorted(maps.Keys(had)))
		}
	})
}

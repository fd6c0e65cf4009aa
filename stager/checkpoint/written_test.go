package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// inOrder returns operations that write files one after the other, each in two halves, as the
// source of a library does that cannot run here. "-NAME" removes a file, and "=NAME" is the end
// of a checkpoint.
func inOrder(files ...string) (ops []op) {
	made := map[string]bool{}
	for _, f := range files {
		path, text, said := strings.Cut(f, ": ")
		if gone, ok := strings.CutPrefix(path, "-"); ok {
			ops = append(ops, op{Op: "remove", Path: gone})
			continue
		}
		if whole, ok := strings.CutPrefix(path, "="); ok {
			ops = append(ops, op{Op: "mark", Path: whole})
			continue
		}
		for i := range path {
			if dir := path[:i]; path[i] == '/' && !made[dir] {
				ops, made[dir] = append(ops, op{Op: "mkdir", Path: dir}), true
			}
		}
		if !said {
			text = "of " + path
		}
		half := len(text) / 2
		ops = append(ops, op{Op: "create", Path: path, Truncate: true}, op{Op: "write", Path: path, Data: []byte(text[:half])},
			op{Op: "write", Path: path, Off: int64(half), Data: []byte(text[half:])}, op{Op: "close", Path: path})
	}
	return ops
}

// described returns the operations of libraries that cannot be recorded here, according to their
// sources.
func described(t *testing.T) (all []*recording) {
	t.Helper()
	for name, ops := range map[string][]op{
		// Each rank writes its states; after a barrier, rank 0 writes latest.
		"deepspeed-described": inOrder(
			"global_step500/zero_pp_rank_0_mp_rank_00_optim_states.pt", "global_step500/mp_rank_00_model_states.pt", "latest: global_step500", "=global_step500",
			"global_step1000/zero_pp_rank_0_mp_rank_00_optim_states.pt", "global_step1000/mp_rank_00_model_states.pt", "latest: global_step1000", "=global_step1000",
		),
		// The old format of Megatron-LM, and its distributed one.
		"megatron-described": inOrder(
			"iter_0000500/mp_rank_00/model_optim_rng.pt", "iter_0000500/mp_rank_01/model_optim_rng.pt", "latest_checkpointed_iteration.txt: 500", "=iter_0000500",
			"iter_0001000/common.pt", "iter_0001000/__0_0.distcp", "iter_0001000/.metadata: pickle.", "iter_0001000/metadata.json: {}",
			"latest_checkpointed_iteration.txt: 1000", "=iter_0001000",
		),
		// NeMo marks a checkpoint as unfinished, writes it, and removes the mark.
		"nemo-described": inOrder(
			"gpt--step=500-consumed_samples=4000.0-unfinished: ", "gpt--step=500-consumed_samples=4000.0.ckpt", "-gpt--step=500-consumed_samples=4000.0-unfinished",
			"=gpt--step=500-consumed_samples=4000.0.ckpt",
			"gpt--step=1000-consumed_samples=8000.0-unfinished: ", "gpt--step=1000-consumed_samples=8000.0-last/weights/__0_0.distcp",
			"gpt--step=1000-consumed_samples=8000.0-last/weights/.metadata: pickle.", "-gpt--step=1000-consumed_samples=8000.0-unfinished",
			"=gpt--step=1000-consumed_samples=8000.0-last",
		),
	} {
		r := &recording{name: name, ops: ops}
		r.findTruth(t)
		all = append(all, r)
	}
	return all
}

// A sign of an earlier run is in a directory that is written to again.
func TestSignThatIsOlderThanItsDataIsRefused(t *testing.T) {
	signs := map[string]string{
		"torch_dcp-": ".metadata", "trainer-": "trainer_state.json", "accelerate-": "random_states_0.pkl",
		"tensorflow-": "ckpt-500.index", "deepspeed-": "../latest", "megatron_core-": "../latest_checkpointed_iteration.txt", "ray_train-2.60": "../checkpoint_manager_snapshot.json",
	}
	for prefix, sign := range signs {
		for _, r := range recordings(t, prefix) {
			inBubble(t, func(t *testing.T) {
				b, dir := mem.New(), t.TempDir()
				w := newWriter(t, dir)
				name := ""
				for _, o := range r.ops {
					if w.do(o); o.Op == "mark" {
						name = o.Path
						break
					}
				}
				w.kill()
				at := filepath.Join(dir, name, sign)
				if strings.HasPrefix(sign, "ckpt") {
					at = filepath.Join(dir, sign)
				}
				old := time.Now().Add(-24 * time.Hour * 365 * 20)
				if err := os.Chtimes(at, old, old); err != nil {
					t.Fatal(err)
				}
				u := newUploader(t, dir, b, nil)
				settled(t, u)
				settled(t, u)
				if waiting := fmt.Sprint(u.Status().Waiting); len(commits(b)) > 0 || !strings.Contains(waiting, "is older than") {
					t.Errorf("%s: committed %v, waiting %s; want that the sign is older", r.name, commits(b), waiting)
				}
			})
		}
	}
}

package checkpoint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// call is one call of a library that writes checkpoints, as testdata/written has them.
type call struct {
	Op       string `json:"op"`
	Path     string `json:"path"`
	To       string `json:"to"`
	Off      int64  `json:"off"`
	Size     int64  `json:"size"`
	Data     []byte `json:"data"`
	Truncate bool   `json:"truncate"`
}

// replay does what the library did.
func (c call) replay(dir string) error {
	p := filepath.Join(dir, c.Path)
	change := func(flags int, do func(*os.File) error) error {
		f, err := os.OpenFile(p, os.O_WRONLY|flags, 0o644)
		if err != nil {
			return err
		}
		defer f.Close()
		return do(f)
	}
	switch c.Op {
	case "mkdir":
		return os.Mkdir(p, 0o755)
	case "create":
		if c.Truncate {
			return os.WriteFile(p, nil, 0o644)
		}
		return change(os.O_CREATE, func(*os.File) error { return nil })
	case "write":
		return change(0, func(f *os.File) error {
			_, err := f.WriteAt(c.Data, c.Off)
			return err
		})
	case "truncate":
		return change(0, func(f *os.File) error { return f.Truncate(c.Size) })
	case "rename":
		return os.Rename(p, filepath.Join(dir, c.To))
	case "remove":
		return os.Remove(p)
	}
	return fmt.Errorf("unknown call %q", c.Op)
}

func readCalls(t *testing.T, name string) (calls []call) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/written", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(bytes.NewReader(text))
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return calls
		}
		var c call
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		calls = append(calls, c)
	}
}

// inOrder are calls that write files one after the other, each in two halves, as the
// source of a library does that is not at hand. -NAME is removed.
func inOrder(files ...string) (calls []call) {
	made := map[string]bool{}
	for _, f := range files {
		path, text, said := strings.Cut(f, ": ")
		if gone, ok := strings.CutPrefix(path, "-"); ok {
			calls = append(calls, call{Op: "remove", Path: gone})
			continue
		}
		for i := range path {
			if dir := path[:i]; path[i] == '/' && !made[dir] {
				calls, made[dir] = append(calls, call{Op: "mkdir", Path: dir}), true
			}
		}
		if !said {
			text = "of " + path
		}
		half := len(text) / 2
		calls = append(calls, call{Op: "create", Path: path, Truncate: true},
			call{Op: "write", Path: path, Data: []byte(text[:half])}, call{Op: "write", Path: path, Off: int64(half), Data: []byte(text[half:])})
	}
	return calls
}

// end is the call by which a step is whole: the nth that has this path, or leads to it.
type end struct {
	step int64
	path string
	nth  int
}

func (e end) in(calls []call) int {
	n := 0
	for i, c := range calls {
		if c.To == e.path || c.To == "" && c.Path == e.path {
			n++
		}
		if n == e.nth {
			return i
		}
	}
	return len(calls)
}

// written are the ways in which frameworks write, each two checkpoints.
var written = []struct {
	name  string
	calls []call // nil: recorded from the library itself
	ends  []end
}{
	{name: "torch_save", ends: []end{{500, "model-500.pt", 3}, {1000, "model-1000.pt", 3}}},
	{name: "torch_dcp", ends: []end{{500, "step-500/.metadata", 1}, {1000, "step-1000/.metadata", 1}}},
	{name: "trainer", ends: []end{{2, "checkpoint-2/trainer_state.json", 3}, {4, "checkpoint-4/trainer_state.json", 3}}},
	{name: "accelerate", ends: []end{{500, "checkpoint-500/random_states_0.pkl", 3}, {1000, "checkpoint-1000/random_states_0.pkl", 3}}},
	{name: "tensorflow", ends: []end{{500, "ckpt-500_temp", 2}, {1000, "ckpt-1000_temp", 2}}},
	{name: "orbax", ends: []end{{500, "500", 1}, {1000, "1000", 1}}},
	// DeepSpeed's engine.save_checkpoint: each rank its states, a barrier, then rank 0 latest.
	{name: "deepspeed", calls: inOrder(
		"global_step500/zero_pp_rank_0_mp_rank_00_optim_states.pt", "global_step500/mp_rank_00_model_states.pt", "latest: global_step500",
		"global_step1000/zero_pp_rank_0_mp_rank_00_optim_states.pt", "global_step1000/mp_rank_00_model_states.pt", "latest: global_step1000",
	), ends: []end{{500, "latest", 3}, {1000, "latest", 6}}},
	// Megatron-LM's save_checkpoint, and its distributed format with torch's inside.
	{name: "megatron", calls: inOrder(
		"iter_0000500/mp_rank_00/model_optim_rng.pt", "iter_0000500/mp_rank_01/model_optim_rng.pt", "latest_checkpointed_iteration.txt: 500",
		"iter_0001000/common.pt", "iter_0001000/__0_0.distcp", "iter_0001000/.metadata: pickle.", "iter_0001000/metadata.json",
		"latest_checkpointed_iteration.txt: 1000",
	), ends: []end{{500, "latest_checkpointed_iteration.txt", 3}, {1000, "latest_checkpointed_iteration.txt", 6}}},
	// NeMo marks a checkpoint as unfinished, writes it, and removes the mark.
	{name: "nemo", calls: inOrder(
		"gpt--step=500-consumed_samples=4000.0-unfinished: ", "gpt--step=500-consumed_samples=4000.0.ckpt", "-gpt--step=500-consumed_samples=4000.0-unfinished",
		"gpt--step=1000-consumed_samples=8000.0-unfinished: ", "gpt--step=1000-consumed_samples=8000.0-last/weights/__0_0.distcp",
		"gpt--step=1000-consumed_samples=8000.0-last/weights/.metadata: pickle.", "-gpt--step=1000-consumed_samples=8000.0-unfinished",
	), ends: []end{{500, "gpt--step=500-consumed_samples=4000.0-unfinished", 4}, {1000, "gpt--step=1000-consumed_samples=8000.0-unfinished", 4}}},
}

// A writer that is killed after any of its calls leaves what is never sent, however
// long it lies there; what it finished is committed when it has settled.
func TestWhatAFrameworkHasHalfWrittenIsNeverSent(t *testing.T) {
	for _, w := range written {
		t.Run(w.name, func(t *testing.T) {
			calls := w.calls
			if calls == nil {
				calls = readCalls(t, w.name)
			}
			for killed := range len(calls) + 1 {
				inBubble(t, func(t *testing.T) {
					b, dir := mem.New(), t.TempDir()
					for i, c := range calls[:killed] {
						if err := c.replay(dir); err != nil {
							t.Fatalf("call %d, %s %s: %v", i, c.Op, c.Path, err)
						}
					}
					u := newUploader(t, dir, b, nil)
					settled(t, u)
					time.Sleep(time.Hour)
					settled(t, u)
					got := commits(b)
					for _, e := range w.ends {
						whole := e.in(calls) + 1
						switch sent := slices.Contains(got, stepDir(e.step, 0)); {
						case sent && (killed < whole || pruned(calls[:killed], e.step)):
							t.Errorf("step %d was sent, of whose calls %d of %d had been made", e.step, killed, whole)
						case !sent && killed == whole:
							t.Errorf("step %d was not sent, though all of its %d calls had been made; waiting %v", e.step, killed, u.Status().Waiting)
						}
					}
				})
			}
		})
	}
}

// pruned tells whether the library itself began to remove a step.
func pruned(calls []call, step int64) bool {
	return slices.ContainsFunc(calls, func(c call) bool {
		top, _, _ := strings.Cut(c.Path, "/")
		return c.Op == "remove" && (top == fmt.Sprint(step) || top == fmt.Sprintf("ckpt-%d.index", step))
	})
}

// While the library writes on, everything comes that is whole at some time, byte for
// byte as it was then.
func TestWhatAFrameworkHasWrittenComesWithinItsTime(t *testing.T) {
	for _, w := range written {
		inBubble(t, func(t *testing.T) {
			calls := w.calls
			if calls == nil {
				calls = readCalls(t, w.name)
			}
			b, dir := mem.New(), t.TempDir()
			u := newUploader(t, dir, b, nil)
			for _, c := range calls {
				if err := c.replay(dir); err != nil {
					t.Fatal(err)
				}
				settled(t, u)
			}
			for _, e := range w.ends {
				if step := e.step; !slices.Contains(commits(b), stepDir(step, 0)) {
					t.Errorf("%s: step %d is not committed; waiting %v", w.name, step, u.Status().Waiting)
				}
			}
			if failed := u.Status().Failed; len(failed) > 0 {
				t.Errorf("%s: failed %v", w.name, failed)
			}
			// The second checkpoint of some has other files than the first.
			to := filepath.Join(t.TempDir(), "restored")
			r, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: to, Step: Newest, AllowProvisional: true})
			if err != nil {
				t.Fatal(err)
			}
			files, here := read(t, to), read(t, dir)
			maps.DeleteFunc(here, func(p string, _ string) bool { return strings.HasPrefix(p, private) })
			for p, text := range files {
				if !slices.Contains(slices.Collect(maps.Values(here)), text) {
					t.Errorf("%s: step %d has a %s that the library did not write", w.name, r.Step, p)
				}
			}
			if r.Step != w.ends[1].step || len(files) == 0 {
				t.Errorf("%s: restored step %d with %d files, want step %d", w.name, r.Step, len(files), w.ends[1].step)
			}
		})
	}
}

// A sign of an earlier run, in a folder that is written to again.
func TestASignThatIsOlderThanItsDataIsRefused(t *testing.T) {
	signs := map[string]string{
		"torch_dcp": "step-500/.metadata", "trainer": "checkpoint-2/trainer_state.json", "accelerate": "checkpoint-500/random_states_0.pkl",
		"tensorflow": "ckpt-500.index", "orbax": "500/commit_success.txt", "deepspeed": "latest", "megatron": "latest_checkpointed_iteration.txt",
	}
	for _, w := range written {
		if signs[w.name] == "" {
			continue // it has none that stays
		}
		inBubble(t, func(t *testing.T) {
			calls := w.calls
			if calls == nil {
				calls = readCalls(t, w.name)
			}
			b, dir := mem.New(), t.TempDir()
			for _, c := range calls[:w.ends[0].in(calls)+1] {
				if err := c.replay(dir); err != nil {
					t.Fatal(err)
				}
			}
			old := time.Now().Add(-24 * time.Hour * 365 * 50)
			if err := os.Chtimes(filepath.Join(dir, signs[w.name]), old, old); err != nil {
				t.Fatal(err)
			}
			u := newUploader(t, dir, b, nil)
			settled(t, u)
			settled(t, u)
			if waiting := fmt.Sprint(u.Status().Waiting); len(commits(b)) > 0 || !strings.Contains(waiting, "is older than") {
				t.Errorf("%s: committed %v, waiting %s; want that the sign is older", w.name, commits(b), waiting)
			}
		})
	}
}

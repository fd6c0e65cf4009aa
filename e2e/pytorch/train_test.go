package pytorch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
)

// frameworksVariable names a Python with torch, torchdata, transformers, accelerate and lightning.
const frameworksVariable = "STAGER_FRAMEWORKS_PYTHON"

// line is a line that an example of examples/train prints after each step.
type line struct {
	Rank    int     `json:"rank"`
	Step    int     `json:"step"`
	Loss    float64 `json:"loss"`
	Samples []int   `json:"samples"`
}

// kill is what gets a SIGKILL when the training has reached a step: trainer, child (the last
// process that the trainer started: a worker, or a rank of torchrun), or stager.
type kill struct {
	what string
	step int
}

// fit runs an example until it succeeds, and returns the lines of the steps that count: those
// after the newest checkpoint that a killed run had saved come again.
func (n *node) fit(t *testing.T, args []string, kills ...kill) (steps map[int]map[int]line) {
	t.Helper()
	steps = make(map[int]map[int]line) // by rank
	for {
		due := len(kills)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // torchrun starts all again after each kill
		t.Cleanup(cancel)
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env = append(n.l.command(n.socket).Env, "STAGER_BINARY="+n.l.stager, "GLOO_SOCKET_IFNAME=lo")
		cmd.Env = append(cmd.Env, n.l.store...)
		cmd.Stderr = t.Output()
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(out); lines.Scan(); {
			for _, l := range linesOf(t, lines.Text()) {
				of := steps[l.Rank]
				if of == nil {
					of = make(map[int]line)
					steps[l.Rank] = of
				}
				maps.DeleteFunc(of, func(step int, _ line) bool { return step > l.Step })
				of[l.Step] = l
				if len(kills) > 0 && l.Step >= kills[0].step {
					n.strike(t, kills[0].what, cmd.Process.Pid)
					kills = kills[1:]
				}
			}
		}
		err = cmd.Wait()
		if exit := new(exec.ExitError); errors.As(err, &exit) && len(kills) < due {
			continue
		}
		if err != nil || len(kills) > 0 {
			t.Fatalf("%v ended with %v, and %d kills were still due", args, err, len(kills))
		}
		return steps
	}
}

// linesOf returns the lines of ranks in a line of text. torchrun puts the rank before each, and
// copies those of two ranks at once, so that one may follow the other without a line break.
func linesOf(t *testing.T, text string) (all []line) {
	t.Helper()
	for _, part := range strings.Split(text, "{")[1:] {
		var l line
		err := json.NewDecoder(strings.NewReader("{" + part)).Decode(&l)
		switch {
		case err == nil && l.Step > 0:
			all = append(all, l)
		case strings.Contains(part, `"samples"`):
			t.Logf("not a line of a rank: %v: %q", err, text)
		}
	}
	return all
}

// strike kills a part of a training whose first process is pid.
func (n *node) strike(t *testing.T, what string, pid int) {
	t.Helper()
	switch what {
	case "stager":
		_ = n.cmd.Process.Kill()
		_ = n.cmd.Wait() // killed
		n.start()
		return
	case "child":
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		var children []byte
		for _, list := range lists {
			of, _ := os.ReadFile(list) // the thread has ended
			children = append(children, of...)
		}
		if _, scanned := fmt.Sscan(lastWord(string(children)), &pid); err != nil || scanned != nil {
			t.Fatalf("process %d has no children: %v, %v", pid, err, scanned)
		}
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func lastWord(of string) string {
	words := strings.Fields(of)
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}

// eachUsed fails the test unless each sample was used once in each epoch.
func eachUsed(t *testing.T, steps map[int]map[int]line) {
	t.Helper()
	times := make(map[int]int)
	for _, of := range steps {
		for _, l := range of {
			for _, sample := range l.Samples {
				times[sample]++
			}
		}
	}
	wrong := 0
	for sample := range samples {
		if times[sample] != epochs {
			wrong++
		}
	}
	if wrong > 0 || len(times) != samples {
		t.Errorf("got %d samples, of them %d not %d times, want each of %d in each epoch; %s", len(times), wrong, epochs, samples, unlike(times, steps))
	}
}

// unlike says how often samples were used that were not used once in each epoch, and which lines
// of a rank are missing: a line that was lost on the way looks like samples that were.
func unlike(times map[int]int, steps map[int]map[int]line) string {
	var out strings.Builder
	for sample := range samples {
		if times[sample] != epochs {
			fmt.Fprintf(&out, "sample %d %d times, ", sample, times[sample])
		}
	}
	for rank, of := range steps {
		for step := range slices.Max(slices.Collect(maps.Keys(of))) {
			if _, ok := of[step+1]; !ok {
				fmt.Fprintf(&out, "rank %d has no line of step %d, ", rank, step+1)
			}
		}
	}
	return strings.TrimSuffix(out.String(), ", ")
}

// typed returns what an example's comment tells to type after the name of the program, in the
// directories of the node.
func (n *node) typed(t *testing.T, example string) []string {
	t.Helper()
	file := "../../examples/train/" + example + ".py"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^    (?:python3|torchrun) (.*)$`).FindStringSubmatch(string(text))
	if line == nil {
		t.Fatalf("%s has no line to type", file)
	}
	return strings.Fields(strings.NewReplacer(example+".py", file, "/out", n.dir+"/out", "/newest", n.dir+"/newest").Replace(line[1]))
}

// Two ranks train with DDP, while a rank, a worker's shards and stager are lost: torchrun starts all
// again at the newest checkpoint, and each sample is used once in each epoch.
func TestExampleOfDDPUsesSamplesOnce(t *testing.T) {
	l := newLab(t)
	n := l.nodeOf("s3://digits/ddp/", count/3)
	args := []string{l.trainer.Python, "-B", "-m", "torch.distributed.run", "--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0"}
	// Without -r and -t, torchrun of PyTorch 1.13 fails on Python 3.11.
	args = append(append(args, "-r", "1", "-t", "1", "--log_dir", t.TempDir()), n.typed(t, "webdataset_ddp")...)
	steps := n.fit(t, args, kill{"child", 25}, kill{"stager", 50}, kill{"child", 70})
	eachUsed(t, steps)
	var losses [2]float64 // of the first and last ten steps
	last := slices.Max(slices.Collect(maps.Keys(steps[0])))
	for step := 1; step <= 10; step++ {
		losses[0] += steps[0][step].Loss + steps[1][step].Loss
		losses[1] += steps[0][last+1-step].Loss + steps[1][last+1-step].Loss
	}
	if losses[1] > losses[0]/2 {
		t.Errorf("the sum of ten losses went from %.3f to %.3f: nothing was learnt", losses[0], losses[1])
	}
}

// importing returns the first of the Pythons in frameworksVariable that imports a module.
func importing(t *testing.T, module string) string {
	t.Helper()
	for _, python := range filepath.SplitList(os.Getenv(frameworksVariable)) {
		if exec.CommandContext(t.Context(), python, "-c", "import "+module).Run() == nil {
			return python
		}
	}
	live.Require(t, "trainers", fmt.Errorf("%s names no Python with %s", frameworksVariable, module))
	return ""
}

// repacked is a lab whose samples are in shards of another library.
func (l *lab) repacked(t *testing.T, python, kind string) *lab {
	t.Helper()
	of := *l
	of.t, of.url, of.shards = t, "s3://digits/"+kind+"/", t.TempDir()
	of.run(exec.CommandContext(t.Context(), python, "testdata/pack_streaming.py", kind, l.shards, of.shards))
	push := exec.CommandContext(t.Context(), l.stager, "push", "--quiet", of.shards, of.url)
	push.Env = append(os.Environ(), l.store...)
	of.run(push)
	of.size = max(of.largest(of.shards), 24<<10) // a window has a smallest size
	return &of
}

// Trainers of frameworks are killed, as are their workers and stager. Started again they restore the
// newest checkpoint, and each step has the samples and the loss of a run that nobody disturbed.
func TestExamplesOfFrameworksContinueExactly(t *testing.T) {
	if os.Getenv(frameworksVariable) == "" {
		live.Require(t, "trainers", errors.New(frameworksVariable+" names no Python with torchdata, transformers, accelerate and lightning"))
	}
	l := newLab(t)
	l.trainer.Path = "" // they have what they import
	whole := []kill{{"trainer", 25}, {"child", 48}, {"stager", 70}, {"trainer", 131}, {"child", 155}}
	alone := []kill{{"trainer", 25}, {"stager", 70}, {"trainer", 131}} // without workers
	for _, example := range []struct {
		name, module, packed string
		kills                []kill
	}{
		{"torch_dcp", "torchdata", "", whole},
		{"hf_trainer", "accelerate", "", whole},
		{"lightning_fit", "lightning", "", whole},
		{"mosaicml_mds", "streaming", "mds", whole},
		{"litdata_chunks", "litdata", "litdata", whole},
		{"tf_data", "tensorflow", "", alone},
		{"jax_grain", "grain", "", alone},
	} {
		t.Run(example.name, func(t *testing.T) {
			python := importing(t, example.module)
			own := *l
			own.t = t
			if example.packed != "" {
				own = *l.repacked(t, python, example.packed)
			}
			run := func(saves string, kills ...kill) map[int]map[int]line {
				n := own.nodeOf("s3://digits/saves-"+example.name+saves, count/3)
				defer n.destroy()
				return n.fit(t, append([]string{python, "-B"}, n.typed(t, example.name)...), kills...)
			}
			want := run("-calm/")
			eachUsed(t, want)
			got := run("/", example.kills...)
			eachUsed(t, got)
			for _, step := range slices.Sorted(maps.Keys(want[0])) {
				if !reflect.DeepEqual(got[0][step], want[0][step]) {
					t.Fatalf("got step %d as %+v, want it as in a run without kills: %+v", step, got[0][step], want[0][step])
				}
			}
			t.Logf("%d steps after %d kills have the samples and losses of a run without", len(want[0]), len(example.kills))
		})
	}
}

// The examples are short, and at most three of their lines name stager.
func TestExamplesOfTrainingAreShort(t *testing.T) {
	files, err := filepath.Glob("../../examples/train/*.py")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	uses := regexp.MustCompile(`(?m)^ .*\bstager\.|^[^i"\n].*\bstager\.`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(text), "\n"); got > 60 {
			t.Errorf("%s has %d lines, want at most 60", file, got)
		}
		_, code, _ := strings.Cut(string(text)[3:], `"""`)
		if found := uses.FindAllString(code, -1); len(found) == 0 || len(found) > 3 {
			t.Errorf("%s has %d lines of stager, want three at most:\n%s", file, len(found), strings.Join(found, "\n"))
		}
	}
}

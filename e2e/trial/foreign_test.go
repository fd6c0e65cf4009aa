package trial

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
)

// foreignCommands are the columns of the table, in their order.
var foreignCommands = []string{"push", "prefetch", "check", "push --commit", "stager commit", "restore", "prune", "window"}

// results are the table of servers and commands.
type results struct {
	mu    sync.Mutex
	cells map[string]map[string]string // by server and command
}

func (r *results) add(server, command, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cells[server] == nil {
		r.cells[server] = make(map[string]string)
	}
	r.cells[server][command] = text
}

func (r *results) String() string {
	var text strings.Builder
	out := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "server\t%s\n", strings.Join(foreignCommands, "\t"))
	for _, f := range foreigners {
		row := r.cells[f.name]
		if row == nil {
			continue // it is not here
		}
		fmt.Fprint(out, f.name)
		for _, command := range foreignCommands {
			fmt.Fprint(out, "\t", row[command])
		}
		fmt.Fprintln(out)
	}
	_ = out.Flush() // to memory
	return text.String()
}

// TestForeignServers walks every command over servers of other projects, and prints a table
// of both. In its short form all servers run at the same time.
func TestForeignServers(t *testing.T) {
	binary := build(t)
	table := &results{cells: make(map[string]map[string]string)}
	t.Run("over", func(t *testing.T) {
		for _, f := range foreigners {
			t.Run(f.name, func(t *testing.T) {
				if !full { // whose figures nobody reads
					t.Parallel()
				}
				if f.byHand && !full {
					live.Require(t, f.needs, errors.New("it is tried by hand, with STAGER_TRIAL=full"))
				}
				s, err := f.start(t)
				live.Require(t, f.needs, err)
				t.Cleanup(func() {
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				})
				(&foreignWalk{store: s, foreigner: f, binary: binary, work: shortDir(t), table: table}).all(t)
			})
		}
	})
	t.Logf("\n%s", table)
}

// shortDir is a directory whose path is short enough for a socket in it.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "foreign-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// foreignWalk is what goes through the commands over one server.
type foreignWalk struct {
	store
	foreigner
	binary, work string
	table        *results
}

func (w *foreignWalk) path(name string) string { return filepath.Join(w.work, name) }

// exits runs stager to its end, which must be of a code, and returns what it printed.
func (w *foreignWalk) exits(t *testing.T, want int, args ...string) (out, log string) {
	t.Helper()
	return w.exitsAny(t, []int{want}, args...)
}

// exitsAny is exits with several codes.
func (w *foreignWalk) exitsAny(t *testing.T, want []int, args ...string) (out, log string) {
	t.Helper()
	cmd := w.command(t, w.binary, args...)
	var stdout strings.Builder
	cmd.Stdout = &stdout
	m, err := measure(cmd, 0, nil)
	if err != nil || !slices.Contains(want, m.exit) {
		t.Errorf("%s: got exit %d, %v; want one of %d\n%s\n%s", strings.Join(args, " "), m.exit, err, want, m.log, stdout.String())
	}
	return stdout.String(), m.log
}

// step runs a part of the walk as a test of its own, and notes how it went.
func (w *foreignWalk) step(t *testing.T, command string, do func(t *testing.T)) {
	began := time.Now()
	text := "ok"
	if refused := w.refusals()[command]; refused != nil {
		text, do = "refused", refused
	}
	if !t.Run(strings.ReplaceAll(command, " ", "_"), do) {
		text = "FAILED"
	}
	w.table.add(w.name, command, fmt.Sprintf("%s, %.1f s", text, time.Since(began).Seconds()))
}

// all walks all commands. What one of them needs of another is made beforehand.
func (w *foreignWalk) all(t *testing.T) {
	source := w.path("source")
	if w.readOnly {
		source = filepath.Join(w.disk, "data")
	}
	if err := foreignTree(source); err != nil {
		t.Fatal(err)
	}
	w.step(t, "push", func(t *testing.T) { w.push(t, source) })
	w.step(t, "prefetch", func(t *testing.T) { w.prefetch(t, source) })
	w.step(t, "check", w.check)
	w.step(t, "push --commit", func(t *testing.T) { w.commit(t, source) })
	w.step(t, "stager commit", func(t *testing.T) { w.stagerCommit(t, source) })
	w.step(t, "restore", func(t *testing.T) { w.restore(t, source) })
	w.step(t, "prune", w.prune)
	w.step(t, "window", w.readWindow)
	if w.ignoresCase {
		t.Run("names that are one", w.collide)
	}
	if w.name == "impacket" {
		t.Run("wrong password", w.wrongPassword)
	}
}

// foreignTree makes files whose names servers order and write differently, with one that
// needs several parts.
func foreignTree(dir string) error {
	sizes := map[string]int64{"model.bin": 20 << 20, "a/1": 100, "a/2": 0, "a-b": 10, "a.tar": 1536, "ab/c d+e&f=g.txt": 20, "Ünï/ß": 30, "a b": 5, "a%20b": 6}
	for i := range 20 {
		sizes[fmt.Sprintf("many/%02d/x", i)] = int64(1000 + i)
	}
	var errs []error
	for name, size := range sizes {
		errs = append(errs, writeNoise(filepath.Join(dir, filepath.FromSlash(name)), size))
	}
	return errors.Join(errs...)
}

// equalTrees checks that two directories have the same files.
func equalTrees(t *testing.T, a, b string) {
	t.Helper()
	if out, err := exec.Command("diff", "-r", "--exclude=.stager", "--exclude=RESTORED.json", a, b).CombinedOutput(); err != nil {
		t.Errorf("%s and %s differ: %v\n%s", a, b, err, out)
	}
}

func (w *foreignWalk) push(t *testing.T, source string) {
	w.exits(t, 0, "push", source, w.url("data"))
	w.exits(t, 0, "push", source, w.url("data")) // again, onto what is there
}

func (w *foreignWalk) prefetch(t *testing.T, source string) {
	w.exits(t, 0, "prefetch", w.url("data"), w.path("back"))
	equalTrees(t, source, w.path("back"))
}

// check finds what is known to be broken there, and nothing else. It writes only in the long
// form: where a server answers 500 to what it cannot do, that takes minutes.
func (w *foreignWalk) check(t *testing.T) {
	args, want := []string{"check", "--size", "4Mi", w.url("check")}, w.checked
	if !full || w.readOnly {
		args, want = []string{"check", "--read-only", "--retry-for", "2s", w.url("data")}, []int{w.read}
	}
	if want == nil {
		want = []int{0}
	}
	out, _ := w.exitsAny(t, want, args...)
	for line := range strings.Lines(out) {
		if what, broken := strings.CutPrefix(strings.TrimSpace(line), "✗ "); broken && !slices.Contains(w.broken, what) {
			t.Errorf("broken there, and not known to be: %s\n%s", what, out)
		}
	}
}

func (w *foreignWalk) commit(t *testing.T, source string) {
	for _, step := range []string{"5", "6"} {
		w.exits(t, 0, "push", "--commit", "--step", step, source, w.url("ckpt"))
	}
	w.exits(t, 0, "push", "--commit", "--step", "6", source, w.url("ckpt"))
}

func (w *foreignWalk) stagerCommit(t *testing.T, source string) {
	w.trainerCommits(t, source, "ckpt", "1m", 0)
}

// trainerCommits is a trainer that saves a checkpoint, says so, and waits until it is safe. It
// returns what stager logged.
func (w *foreignWalk) trainerCommits(t *testing.T, source, destination, wait string, exit int) (log string) {
	t.Helper()
	plan := fmt.Sprintf("apiVersion: stager.dev/v1alpha1\nkind: StagePlan\nmetadata: {name: foreign}\nspec:\n  outputs:\n"+
		"  - {name: ckpt, path: %s, destination: %q, quietPeriod: 1h, required: true}\n", w.path("out"), w.url(destination))
	if err := os.WriteFile(w.path("plan.yaml"), []byte(plan), 0o644); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("cp -r '%s' '%s/step-7' && '%s' commit --socket '%s' --wait %s ckpt '%[2]s/step-7'", source, w.path("out"), w.binary, w.path("s"), wait)
	_, log = w.exits(t, exit, "run", "-f", w.path("plan.yaml"), "--socket", w.path("s"), "--", "sh", "-c", script)
	return log
}

func (w *foreignWalk) restore(t *testing.T, source string) {
	if w.readOnly {
		w.restoreSaved(t, source)
		return
	}
	w.exits(t, 0, "restore", w.url("ckpt"), w.path("ckpt"))
	equalTrees(t, source, w.path("ckpt"))
	w.exits(t, 0, "checkpoints", "--verify", w.url("ckpt"))
}

// prune removes all steps but the last.
func (w *foreignWalk) prune(t *testing.T) {
	destination, last := w.url("ckpt"), 7
	if w.readOnly {
		destination, last = w.url("saved"), 6 // see save; removals are not denied
	}
	w.exits(t, 0, "prune", "--last", "1", destination)
	out, _ := w.exits(t, 0, "checkpoints", "-o", "json", destination)
	var committed []int
	for line := range strings.Lines(out) {
		var step struct {
			Step      int
			Committed bool
		}
		if err := json.Unmarshal([]byte(line), &step); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if step.Committed {
			committed = append(committed, step.Step)
		}
	}
	if !slices.Equal(committed, []int{last}) {
		t.Errorf("after prune the steps %v are committed, want %d alone:\n%s", committed, last, out)
	}
}

// readWindow reads all shards through a window whose server goes away in the middle.
func (w *foreignWalk) readWindow(t *testing.T) {
	all := shards{count: 40, size: 64 << 10}
	if w.readOnly {
		dir := filepath.Join(w.disk, "shards")
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			all.digests, err = PackNoise(dir, all.count, all.size)
		}
		if err != nil {
			t.Fatal(err)
		}
	} else {
		all = w.fill(t, w.binary, "shards", all.count, all.size)
	}
	w.window(t, w.binary, "shards", all, Config{
		Readers: 2, Pace: 10 * time.Millisecond,
		Halfway: func(p *Pause) error {
			if !w.forgets {
				return w.dies(t.Context(), time.Second)(p)
			}
			if err := errors.Join(w.Freeze(), p.End()); err != nil {
				return err
			}
			time.Sleep(time.Second) // it is the outage itself, not a wait for something
			return w.Thaw()
		},
	})
}

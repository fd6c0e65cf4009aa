package frameworks

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// roundsVariable is how often a trainer, stager or both are killed; seedVariable draws other
// moments.
const (
	roundsVariable = "STAGER_TRIAL_ROUNDS"
	seedVariable   = "STAGER_TRIAL_SEED"
)

// machine is what a loaded machine adds to the delays. The replays of recordings, in virtual time,
// hold the delays themselves.
const machine = time.Minute

// delays is what may pass from a completion to its COMMIT: the quiet period, or 2 s where the
// evidence is conclusive.
var delays = map[string]time.Duration{"torch_save": 12 * time.Second, "dcp": 2 * time.Second, "trainer": 2 * time.Second}

// Trainers are killed with SIGKILL or SIGTERM, and stager with SIGKILL, at moments drawn at
// random. Each final COMMIT loads in the framework, which goes on from it with the losses of a
// run that nobody disturbed; what was complete on the disk when the writer was killed is
// restored, or something later.
func TestKilledTrainersGoOnFromWhatIsRestored(t *testing.T) {
	python, _, _ := strings.Cut(os.Getenv(pythonVariable), string(filepath.ListSeparator)) // the first of several
	tried := []string{"torch_save", "dcp", "trainer"}
	if python == "" {
		trainer, err := servers.PyTorch()
		live.Require(t, "pytorch", err)
		python, tried = trainer.Python, []string{"torch_save"}
		t.Logf("with Debian's torch: %v alone; %s=PYTHON tries dcp and the Hugging Face Trainer", tried, pythonVariable)
	}
	rounds, seed := fromEnvironment(t, roundsVariable, 2), fromEnvironment(t, seedVariable, 5)
	stager := buildStager(t)
	for _, way := range tried {
		t.Run(way, func(t *testing.T) {
			k := newKiller(t, stager, python, way, uint64(seed))
			for round := range rounds {
				k.round(round)
			}
			k.loadAll()
			k.compareUndisturbed()
			t.Logf("%s: %d kills of the trainer, %d of them with SIGTERM, %d of stager; %d steps said complete, %d final COMMITs loaded, %d provisional ones; "+
				"%d losses are those of an undisturbed run; longest wait for a COMMIT %v",
				way, k.kills, k.terminated, k.stagerKills, len(k.said), k.loaded, k.provisional, len(k.losses), k.longest.Round(time.Millisecond))
		})
	}
}

// fromEnvironment returns the number in a variable, or what stands instead of it.
func fromEnvironment(t *testing.T, variable string, instead int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return instead
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s: want a number (got %q)", variable, text)
	}
	return n
}

// killer runs a trainer and a stager beside it.
type killer struct {
	t                          *testing.T
	stager, way                string
	dir, out, dest, plan, sock string
	python                     *exec.Cmd
	orders                     io.Writer
	lines                      chan string
	daemon                     *exec.Cmd
	random                     *rand.Rand
	from                       string         // what the next trainer begins with, or "-"
	said                       map[int]bool   // steps that the framework called complete
	losses                     map[int]string // by step
	kills, stagerKills         int
	terminated                 int // of kills
	loaded, provisional        int
	longest                    time.Duration
}

func newKiller(t *testing.T, stager, python, way string, seed uint64) *killer {
	t.Helper()
	dir, err := os.MkdirTemp("", "kills-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	k := &killer{
		t: t, stager: stager, way: way, dir: dir, out: dir + "/out", dest: "file://" + dir + "/dest", plan: dir + "/plan.yaml", sock: dir + "/s.sock",
		lines: make(chan string, 10_000), random: rand.New(rand.NewPCG(seed, uint64(len(way)))), from: "-", said: make(map[int]bool), losses: make(map[int]string),
	}
	text := fmt.Sprintf("apiVersion: stager.dev/v1alpha1\nkind: StagePlan\nmetadata: {name: kills}\nspec:\n  outputs:\n  - {name: ckpt, path: %s, destination: %q}\n", k.out, k.dest)
	for _, err := range []error{os.Mkdir(k.out, 0o777), os.Mkdir(dir+"/dest", 0o777), os.WriteFile(k.plan, []byte(text), 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	k.python = exec.Command(python, "-B", "testdata/kills.py", way)
	k.python.Env = append(os.Environ(), "OMP_NUM_THREADS=1") // more threads spin while they wait for each other
	k.python.Stderr = t.Output()
	orders, err := k.python.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := k.python.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := k.python.Start(); err != nil {
		t.Fatal(err)
	}
	k.orders = orders
	go func() {
		defer close(k.lines)
		for scan := bufio.NewScanner(answers); scan.Scan(); {
			k.lines <- scan.Text()
		}
	}()
	t.Cleanup(func() {
		_ = orders.Close()
		_ = k.python.Process.Kill()
		_ = k.python.Wait() // killed
		k.killStager()
	})
	k.await("ready ", 5*time.Minute)
	return k
}

// note takes what the trainer says on the way.
func (k *killer) note(line string) {
	k.t.Helper()
	word, rest, _ := strings.Cut(line, " ")
	fields := strings.Fields(rest)
	switch {
	case word == "complete" && len(fields) == 2:
		step, err := strconv.Atoi(fields[1])
		if err != nil {
			k.t.Fatalf("%q: %v", line, err)
		}
		k.said[step] = true
	case word == "loss" && len(fields) == 2:
		step, err := strconv.Atoi(fields[0])
		if err != nil {
			k.t.Fatalf("%q: %v", line, err)
		}
		if before, ok := k.losses[step]; ok && before != fields[1] {
			k.t.Errorf("the loss of step %d is %s, and was %s in a run before", step, fields[1], before)
		}
		k.losses[step] = fields[1]
	case word == "failed":
		k.t.Errorf("%s: %s", k.way, rest)
	}
}

// await returns what follows a word in the next line that begins with it.
func (k *killer) await(word string, limit time.Duration) string {
	k.t.Helper()
	late := time.After(limit)
	for {
		select {
		case line, ok := <-k.lines:
			if !ok {
				k.t.Fatalf("the trainers' Python ended while %q was awaited", word)
			}
			if rest, ok := strings.CutPrefix(line, word); ok {
				return rest
			}
			k.note(line)
		case <-late:
			k.t.Fatalf("nothing began with %q within %v", word, limit)
		}
	}
}

func (k *killer) order(words ...string) {
	k.t.Helper()
	if _, err := io.WriteString(k.orders, strings.Join(words, " ")+"\n"); err != nil {
		k.t.Fatal(err)
	}
}

func (k *killer) startStager() {
	k.t.Helper()
	k.daemon = exec.Command(k.stager, "run", "-f", k.plan, "--socket", k.sock, "--log-level", "warn")
	k.daemon.Stderr = k.t.Output()
	if err := k.daemon.Start(); err != nil {
		k.t.Fatal(err)
	}
}

func (k *killer) killStager() {
	if k.daemon != nil && k.daemon.ProcessState == nil {
		_ = k.daemon.Process.Kill()
		_ = k.daemon.Wait() // killed
	}
}

// round runs a trainer from what was restored, and kills it, and sometimes stager, some
// time after its first checkpoint.
func (k *killer) round(n int) {
	k.t.Helper()
	if k.daemon == nil || k.daemon.ProcessState != nil {
		k.startStager()
	}
	k.order("run", k.out, k.from)
	pid, err := strconv.Atoi(k.await("pid ", time.Minute))
	if err != nil {
		k.t.Fatal(err)
	}
	_, step, _ := strings.Cut(k.await("complete ", 2*time.Minute), " ")
	k.note("complete x " + step)
	time.Sleep(time.Duration(k.random.IntN(1500)) * time.Millisecond)
	if n%3 == 1 {
		k.stagerKills++
		k.killStager()
		time.Sleep(time.Duration(k.random.IntN(500)) * time.Millisecond)
		if n%2 == 1 {
			k.startStager()
			time.Sleep(time.Duration(k.random.IntN(1000)) * time.Millisecond)
		}
	}
	k.kills++
	signal := syscall.SIGKILL
	if k.random.IntN(2) == 0 {
		signal = syscall.SIGTERM
		k.terminated++
	}
	_ = syscall.Kill(-pid, signal) // it and its ranks
	k.order("reap", strconv.Itoa(pid))
	k.await("reaped ", time.Minute)
	if k.daemon.ProcessState != nil {
		k.startStager()
	}
	k.restore(n)
}

// last is the newest step that the framework called complete.
func (k *killer) last() int {
	last := 0
	for step := range k.said {
		last = max(last, step)
	}
	return last
}

// restore waits until what was complete is restored, and has the framework load it.
func (k *killer) restore(n int) {
	k.t.Helper()
	want, began := k.last(), time.Now()
	to := filepath.Join(k.dir, fmt.Sprint("restored-", n))
	got := -1
	for {
		_ = os.RemoveAll(to) // of a try before
		_, err := exec.Command(k.stager, "restore", "--quiet", k.dest, to).Output()
		if err == nil {
			got = k.restoredStep(to)
		}
		if took := time.Since(began); got >= want || took > delays[k.way]+machine {
			k.longest = max(k.longest, took)
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if got < want {
		status, _ := exec.Command(k.stager, "status", "--socket", k.sock, "--output=json").Output() // for people
		k.t.Errorf("%s, round %d: restored step %d, and step %d was complete when the trainer was killed; status %s", k.way, n, got, want, status)
	}
	if got >= 0 {
		k.load(to)
		k.from = to
	}
}

func (k *killer) restoredStep(dir string) int {
	k.t.Helper()
	var r struct{ Step int }
	text, err := os.ReadFile(filepath.Join(dir, "RESTORED.json"))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		k.t.Fatal(err)
	}
	return r.Step
}

func (k *killer) load(dir string) {
	k.t.Helper()
	if k.order("load", dir); !k.over() {
		k.t.Errorf("%s: %s is not loaded", k.way, dir)
	}
}

// over waits until a trainer that writes elsewhere has ended, and reports whether it had
// what it loaded.
func (k *killer) over() (loaded bool) {
	k.t.Helper()
	for line := range k.lines {
		if strings.HasPrefix(line, "over ") {
			break
		}
		if loaded = loaded || strings.HasPrefix(line, "loaded "); !strings.HasPrefix(line, "complete ") {
			k.note(line)
		}
	}
	return loaded
}

// compareUndisturbed runs a trainer from the beginning to the last step, which nobody kills:
// its losses are those of the runs before.
func (k *killer) compareUndisturbed() {
	k.t.Helper()
	last := 0
	for step := range k.losses {
		last = max(last, step)
	}
	before := len(k.losses)
	if k.order("undisturbed", filepath.Join(k.dir, "undisturbed"), strconv.Itoa(last)); !k.over() {
		k.t.Errorf("%s: the run that nobody killed did not end", k.way)
	}
	if len(k.losses) != before {
		k.t.Errorf("%s: the run that nobody killed has the losses of %d steps, and the others of %d", k.way, len(k.losses), before)
	}
}

// loadAll has the framework load every step that is final.
func (k *killer) loadAll() {
	k.t.Helper()
	out, err := exec.Command(k.stager, "checkpoints", "-o", "json", k.dest).Output()
	if err != nil {
		k.t.Fatal(err)
	}
	for lines := json.NewDecoder(strings.NewReader(string(out))); lines.More(); {
		var step struct {
			Step                   int
			Committed, Provisional bool
			Problem                string
		}
		if err := lines.Decode(&step); err != nil {
			k.t.Fatal(err)
		}
		switch {
		case step.Problem != "":
			k.t.Errorf("step %d: %s", step.Step, step.Problem)
		case step.Provisional:
			k.provisional++
		case step.Committed:
			to := filepath.Join(k.dir, fmt.Sprint("step-", step.Step))
			if out, err := exec.Command(k.stager, "restore", "--quiet", "--step", strconv.Itoa(step.Step), k.dest, to).CombinedOutput(); err != nil {
				k.t.Errorf("step %d: %v\n%s", step.Step, err, out)
				continue
			}
			k.load(to)
			k.loaded++
			_ = os.RemoveAll(to) // read
		}
	}
}

package trial

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// team is the pods of several nodes that save to one destination, and what their trainers
// wrote.
type team struct {
	vault
	t        *testing.T
	work     string // for what is local; a short path, for the sockets
	output   string // YAML, added to the output of each plan
	limit    string // bandwidth of each pod
	pods     []*pod
	podEnv   []string // of pods alone
	patience time.Duration
	keep     int // steps
	made     int // pods, started or not
	writings []*writing
	other    bool // the binary is another one, which may not report all that is awaited
}

// writing is one writing of a step by the trainers of all nodes: what restore may bring,
// once it is whole.
type writing struct {
	name  string
	step  int
	count int // of nodes
	nodes map[int]bool
	files map[string]string
}

func newTeam(t *testing.T, v vault) *team {
	t.Helper()
	work, err := os.MkdirTemp("", "team-")
	if err != nil {
		t.Fatal(err)
	}
	m := &team{vault: v, t: t, work: work, output: "quietPeriod: 1h", limit: "64Mi", keep: 50, patience: 3 * patience, other: os.Getenv("STAGER_TRIAL_BINARY") != ""}
	t.Cleanup(func() {
		for _, p := range m.pods {
			p.run.kill()
		}
		if t.Failed() {
			keys, _ := m.keys("") // the listing helps; without it there is the log
			t.Logf("the destination has %q", keys)
			for _, p := range m.pods {
				t.Logf("%s logged:\n%s", p.name, p.logged())
			}
		}
		_ = os.RemoveAll(work)
	})
	return m
}

// pod is one run of a pod: a stager with a plan, a volume and an identity.
type pod struct {
	team         *team
	name         string
	job          string
	index, count int
	uid, attempt string
	volume       string
	socket       string
	run          *process

	mu  sync.Mutex
	log bytes.Buffer
}

// Write is the process's, for its log.
func (p *pod) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(text)
}

func (p *pod) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// pod starts a new pod. Without a volume it gets an empty one.
func (m *team) pod(job string, index, count int, volume string) *pod {
	m.t.Helper()
	p := m.prepare(job, index, count, volume)
	p.start()
	return p
}

// prepare makes a pod that is not started.
func (m *team) prepare(job string, index, count int, volume string) *pod {
	m.t.Helper()
	n := m.made
	m.made++
	p := &pod{
		team: m, name: fmt.Sprintf("pod %d (node %d of %d of %s)", n, index, count, job), job: job, index: index, count: count,
		uid: fmt.Sprint("uid-", n), volume: cmp.Or(volume, filepath.Join(m.work, fmt.Sprint("v", n))), socket: filepath.Join(m.work, fmt.Sprint("s", n)),
	}
	plan := fmt.Sprintf(`apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata: {name: team}
spec:
  limits: {bandwidth: %s}
  outputs:
  - {name: ckpt, path: %s, destination: %q, nodes: all, keep: {last: %d}, deadline: 60s, %s}
`, m.limit, p.volume, m.url, m.keep, m.output)
	if err := os.WriteFile(p.socket+".yaml", []byte(plan), 0o644); err != nil {
		m.t.Fatal(err)
	}
	return p
}

// start starts the process of a pod, again after it was killed.
func (p *pod) start() {
	m := p.team
	m.t.Helper()
	cmd := exec.Command(m.binary, "run", "-f", p.socket+".yaml", "--socket", p.socket)
	cmd.Env = append(slices.Concat(os.Environ(), m.env, m.podEnv), fmt.Sprint("STAGER_INDEX=", p.index), fmt.Sprint("STAGER_COUNT=", p.count),
		"STAGER_JOB_UID="+p.job, "STAGER_POD_UID="+p.uid)
	if p.attempt != "" {
		cmd.Env = append(cmd.Env, "STAGER_ATTEMPT="+p.attempt)
	}
	cmd.Stderr = p
	run, err := start(cmd)
	if err != nil {
		m.t.Fatal(err)
	}
	if p.run == nil {
		m.pods = append(m.pods, p)
	}
	p.run = run
}

// start starts a pod for each node of a job, and waits until they save together.
func (m *team) start(job string, count int) []*pod {
	m.t.Helper()
	var pods []*pod
	for i := range count {
		pods = append(pods, m.pod(job, i, count, ""))
	}
	m.meet(pods...)
	return pods
}

// outputStatus is what this looks at in the status of an output.
type outputStatus struct {
	View      string
	Nodes     string
	Pending   []int
	Complete  *struct{ Step int }
	Committed *struct{ Step int }
	Waiting   []struct{ Name, Reason string }
	Failed    []struct {
		Step   int
		Reason string
	}
}

// status returns the status of a pod's output; ok is false while it has none.
func (p *pod) status() (s outputStatus, ok bool) {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", p.socket)
		},
	}}
	resp, err := client.Get("http://s/v1/outputs/ckpt")
	if err != nil {
		return s, false
	}
	defer resp.Body.Close() // it is only read
	return s, resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(&s) == nil
}

// await waits until something is so.
func (m *team) await(what string, so func() bool) {
	m.t.Helper()
	for until := time.Now().Add(m.patience); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			m.t.Fatalf("after %v it is still not so: %s", m.patience, what)
		}
	}
}

// awaitNew is await for what another binary may never report: it goes on after a while.
func (m *team) awaitNew(what string, so func() bool) {
	m.t.Helper()
	if !m.other {
		m.await(what, so)
		return
	}
	for until := time.Now().Add(12 * time.Second); !so() && time.Now().Before(until); {
		time.Sleep(20 * time.Millisecond)
	}
}

// awaitStatus waits for a status of a pod.
func (p *pod) awaitStatus(what string, so func(outputStatus) bool) {
	p.team.t.Helper()
	p.team.awaitNew(p.name+": "+what, func() bool { s, ok := p.status(); return ok && so(s) })
}

// awaitLog waits for a line in the log of a pod.
func (p *pod) awaitLog(pattern string) {
	p.team.t.Helper()
	want := regexp.MustCompile(pattern)
	p.team.awaitNew(p.name+" logs "+pattern, func() bool { return want.MatchString(p.logged()) })
}

// awaitUp waits until a pod has its output.
func (p *pod) awaitUp() {
	p.team.t.Helper()
	p.team.await(p.name+" is up", func() bool { _, ok := p.status(); return ok })
}

// meet waits until pods are in one view, which they were not in together before.
func (m *team) meet(pods ...*pod) {
	m.t.Helper()
	for _, p := range pods {
		p.awaitUp()
	}
	m.awaitNew("all nodes are in one view", func() bool {
		views := make(map[string]bool)
		for _, p := range pods {
			s, _ := p.status()
			views[s.View] = true
		}
		return len(views) == 1 && !views[""]
	})
}

// begin notes a writing of a step of all nodes, of which each pod writes its files.
func (m *team) begin(name string, step, count int) *writing {
	w := &writing{name: name, step: step, count: count, nodes: make(map[int]bool), files: make(map[string]string)}
	m.writings = append(m.writings, w)
	return w
}

// whole reports whether all nodes have written their files.
func (w *writing) whole() bool { return len(w.nodes) == w.count }

// has reports whether all files are of this writing.
func (w *writing) has(files map[string]string) bool {
	for name, text := range files {
		if w.files[name] != text {
			return false
		}
	}
	return len(files) > 0
}

// text is what a file of a writing has in it.
func (w *writing) text(file string) string {
	line := fmt.Sprintf("%s, step %d, %s\n", w.name, w.step, file)
	return strings.Repeat(line, 1+16<<10/len(line))
}

func (p *pod) stepDir(step int) string { return filepath.Join(p.volume, fmt.Sprint("step-", step)) }

// put writes a file of a step.
func (p *pod) put(w *writing, name, text string) {
	p.team.t.Helper()
	path := filepath.Join(p.stepDir(w.step), name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		p.team.t.Fatal(err)
	}
	if name != ".ready" {
		w.files[name] = text
	}
}

// write writes what a pod has of a step, the marker that says that it is complete last.
func (p *pod) write(w *writing) {
	p.team.t.Helper()
	for _, name := range []string{"model.bin", "optim/0.bin"} {
		name = fmt.Sprintf("rank%d/%s", p.index, name)
		p.put(w, name, w.text(name))
	}
	p.put(w, "all.json", w.text("all.json"))
	p.done(w)
}

// commits runs "stager commit --wait" for a step, and checks how it ends and what it says.
func (p *pod) commits(code int, says string, step int, options ...string) {
	m := p.team
	m.t.Helper()
	if m.other {
		return // it has not all options
	}
	args := append([]string{"commit", "--socket", p.socket, "--wait", m.patience.String(), "ckpt", p.stepDir(step)}, options...)
	cmd := exec.Command(m.binary, args...)
	said, err := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(string(said), says) {
		m.t.Errorf("%s: stager %s: exit %d (%v), want %d and %q in what it says: %s", p.name, strings.Join(args, " "), got, err, code, says, said)
	}
}

// done writes the marker of a step.
func (p *pod) done(w *writing) {
	p.team.t.Helper()
	_ = os.Remove(filepath.Join(p.stepDir(w.step), ".ready")) // a second writing has a new one
	w.nodes[p.index] = true
	p.put(w, ".ready", "")
}

// save has the trainers of pods write a step.
func (m *team) save(name string, step int, pods ...*pod) *writing {
	m.t.Helper()
	w := m.begin(name, step, pods[0].count)
	for _, p := range pods {
		p.write(w)
	}
	return w
}

// committed waits until pods report that a step is safe, or saved as provisional.
func (m *team) committed(step int, pods ...*pod) {
	m.t.Helper()
	for _, p := range pods {
		m.awaitNew(fmt.Sprintf("%s reports that step %d is saved", p.name, step), func() bool {
			return slices.Contains(p.saved(), step)
		})
	}
}

var (
	safeLine        = regexp.MustCompile(`msg="a checkpoint is safe".* step=(\d+)`)
	provisionalLine = regexp.MustCompile(`msg="a checkpoint is saved, provisional".* step=(\d+)`)

	removedLine = regexp.MustCompile(`this one is no longer at the destination".* step=(\d+)`)
	skipLine    = regexp.MustCompile(`so this one is not uploaded".* step=(\d+)`)
)

// safe are the steps that a pod reported to be safe.
func (p *pod) safe() []int { return p.named(safeLine) }

// saved are the steps that a pod reported to be safe, or saved as provisional. A slow node
// may know only later by which sign its files were complete.
func (p *pod) saved() []int {
	steps := append(p.safe(), p.named(provisionalLine)...)
	slices.Sort(steps)
	return slices.Compact(steps)
}

// named are the steps in some lines of a pod's log, in order, each once.
func (p *pod) named(line *regexp.Regexp) (steps []int) {
	defer func() {
		slices.Sort(steps)
		steps = slices.Compact(steps)
	}()
	for _, found := range line.FindAllStringSubmatch(p.logged(), -1) {
		step, _ := strconv.Atoi(found[1]) // they are digits
		steps = append(steps, step)
	}
	return steps
}

// keys lists what the destination has.
func (m *team) keys(prefix string) (keys []string, err error) {
	directory, params, _ := strings.Cut(m.url, "?")
	cmd := exec.Command(m.binary, "ls", "-R", "--quiet", "-o", "json", directory+prefix+"?"+params)
	cmd.Env = append(os.Environ(), m.env...)
	out, err := cmd.Output()
	for line := range strings.Lines(string(out)) {
		var o struct{ Key string }
		if json.Unmarshal([]byte(line), &o) == nil {
			keys = append(keys, prefix+o.Key)
		}
	}
	return keys, err
}

// partName is the key of a part of a node, below the directory of a step.
var partName = regexp.MustCompile(`^step-(\d+)/parts/(?:.*/|.*node-)0*(\d+)\.json$`)

// brought waits until a pod has a part of a step at the destination.
func (p *pod) brought(step int) {
	m := p.team
	m.t.Helper()
	m.awaitNew(fmt.Sprintf("%s has brought its part of step %d", p.name, step), func() bool {
		keys, _ := m.keys("") // there may be nothing yet
		return slices.ContainsFunc(keys, func(key string) bool {
			found := partName.FindStringSubmatch(key)
			if found == nil {
				return false
			}
			s, _ := strconv.Atoi(found[1])
			n, _ := strconv.Atoi(found[2])
			return s == step && n == p.index
		})
	})
}

// kill ends the process of pods as the kernel does.
func kill(pods ...*pod) {
	for _, p := range pods {
		p.run.kill()
	}
}

// ends waits for the end of a pod's process and compares its exit code.
func (p *pod) ends(codes ...int) {
	m := p.team
	m.t.Helper()
	select {
	case <-p.run.done:
	case <-time.After(2 * patience):
		m.t.Fatalf("%s does not end", p.name)
	}
	if code := p.run.cmd.ProcessState.ExitCode(); !slices.Contains(codes, code) {
		m.t.Errorf("%s ended with %d, want %v", p.name, code, codes)
	}
}

// terminate has all pods of a job end at once, as at its end.
func terminate(codes []int, pods ...*pod) {
	for _, p := range pods {
		_ = p.run.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	}
	for _, p := range pods {
		p.ends(codes...)
	}
}

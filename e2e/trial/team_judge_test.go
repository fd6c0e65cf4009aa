package trial

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// command runs stager, and returns its exit code and what it printed.
func (m *team) command(args ...string) (code int, said string) {
	m.t.Helper()
	cmd := exec.Command(m.binary, args...)
	cmd.Env = append(os.Environ(), m.env...)
	out, _ := cmd.CombinedOutput() // the code says it
	return cmd.ProcessState.ExitCode(), string(out)
}

// listedStep is what `stager checkpoints` lists of a step.
type listedStep struct {
	Step, Nodes, Files int
	Dir, Problem       string
	Committed          bool
	Provisional        bool
}

func (m *team) steps() (all []listedStep) {
	m.t.Helper()
	cmd := exec.Command(m.binary, "checkpoints", "--quiet", "-o", "json", m.url)
	cmd.Env = append(os.Environ(), m.env...)
	out, err := cmd.Output()
	removed := m.other && bytes.Contains(out, []byte("no such")) // by retention, since it was listed
	if code := cmd.ProcessState.ExitCode(); err != nil && code != exitMissing && !removed {
		m.t.Errorf("stager checkpoints: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		var s listedStep
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			m.t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// lists reports whether a step is committed.
func (m *team) lists(step string) bool {
	m.t.Helper()
	return slices.ContainsFunc(m.steps(), func(s listedStep) bool { return s.Committed && fmt.Sprint(s.Step) == step })
}

// judge restores every committed step, the newest one as each node. Each must be what one
// writing of all nodes wrote, a provisional one of some nodes, and each step that a pod reported to be safe must be there.
// It returns the newest step; -1 is none. A step may be committed while it looks, by a node
// that was replaced and finishes what it began: then it looks again.
func (m *team) judge() (newest int) {
	m.t.Helper()
	for try := 0; ; try++ {
		before := m.steps()
		newest, wrong := m.look(before)
		if len(wrong) > 0 && try < 10 && !slices.Equal(before, m.steps()) {
			continue
		}
		for _, what := range wrong {
			m.t.Error(what)
		}
		return newest
	}
}

// look is one look at the destination, which has these steps. It returns the newest step
// and what is wrong.
func (m *team) look(steps []listedStep) (newest int, wrong []string) {
	m.t.Helper()
	committed := make(map[int]bool)
	for _, s := range steps {
		if !s.Committed {
			continue
		}
		committed[s.Step] = true
		if _, _, problem := m.bring(0, s.Provisional, "--step", fmt.Sprint(s.Step)); problem != "" {
			wrong = append(wrong, problem)
		}
	}
	for _, p := range m.pods {
		for _, step := range p.safe() {
			if !committed[step] && m.keep > len(committed) {
				wrong = append(wrong, fmt.Sprintf("%s reported that step %d is safe, and it is not committed", p.name, step))
			}
		}
	}
	if len(committed) == 0 {
		return -1, wrong
	}
	newest, nodes, problem := m.bring(0, true)
	if problem != "" {
		wrong = append(wrong, problem)
	}
	for n := 1; n < nodes; n++ {
		step, _, problem := m.bring(n, true)
		if problem != "" {
			wrong = append(wrong, problem)
		}
		if step != newest {
			wrong = append(wrong, fmt.Sprintf("node 0 restores step %d and node %d step %d", newest, n, step))
		}
	}
	return newest, wrong
}

// newest judges, and compares the newest step.
func (m *team) newest(want int) {
	m.t.Helper()
	if got := m.judge(); got != want {
		m.t.Errorf("step %d is the newest, want %d", got, want)
	}
}

// bring restores as a node, and compares the files with each whole writing of the step.
// Partly says that the files of some nodes are enough. It returns what is wrong.
func (m *team) bring(node int, partly bool, args ...string) (step, nodes int, wrong string) {
	m.t.Helper()
	dir, err := os.MkdirTemp(m.work, "back-")
	if err != nil {
		m.t.Fatal(err)
	}
	cmd := exec.Command(m.binary, append([]string{"restore", "--quiet", "--output=json", "--node", fmt.Sprint(node), m.url, filepath.Join(dir, "d")}, args...)...)
	cmd.Env = append(os.Environ(), m.env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if cmd.ProcessState.ExitCode() == exitMissing && slices.Contains(args, "--step") && !m.lists(args[len(args)-1]) {
		return -1, 0, "" // retention came first
	}
	var r restored
	if err != nil || json.Unmarshal(out, &r) != nil {
		return -1, 0, fmt.Sprintf("restore %q of node %d: %v: %s", args, node, err, said.String())
	}
	for _, other := range r.FellBackFrom {
		if !strings.Contains(fmt.Sprint(other), "it is provisional") {
			wrong = fmt.Sprintf("a step was committed that is not good: %+v", other)
		}
	}
	got := make(map[string]string)
	for _, name := range r.Files {
		text, err := os.ReadFile(filepath.Join(dir, "d", name))
		if err != nil {
			m.t.Error(err)
		}
		got[name] = string(text)
	}
	for _, w := range m.writings {
		if w.step == r.Step && (w.whole() && maps.Equal(w.files, got) || partly && w.has(got)) {
			return r.Step, w.count, wrong
		}
	}
	return r.Step, 0, fmt.Sprintf("restore %q of node %d: step %d is of no writing of all nodes, it has%s", args, node, r.Step, firstLines(got))
}

// firstLines says what files hold.
func firstLines(files map[string]string) string {
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		line, _, _ := strings.Cut(files[name], "\n")
		fmt.Fprintf(&all, "\n\t%s: %s", name, line)
	}
	return all.String()
}

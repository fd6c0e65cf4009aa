package trial

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// restores has a pod restore what its trainer is to begin with, and returns the step. If its
// stager runs, it hears of that.
func (p *pod) restores() int {
	m := p.team
	m.t.Helper()
	m.made++
	cmd := exec.Command(m.binary, "restore", "--quiet", "--output=json", "--node", fmt.Sprint(p.index), m.url, filepath.Join(m.work, fmt.Sprint("r", m.made)))
	cmd.Env = append(slices.Concat(os.Environ(), m.env), fmt.Sprint("STAGER_INDEX=", p.index), fmt.Sprint("STAGER_COUNT=", p.count),
		"STAGER_JOB_UID="+p.job, "STAGER_POD_UID="+p.uid)
	conn, err := net.Dial("unix", p.socket)
	running := err == nil
	if running {
		_ = conn.Close() // nothing was sent
		cmd.Env = append(cmd.Env, "STAGER_SOCKET="+p.socket)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	text, err := cmd.Output()
	var done struct{ Step, Agreement int }
	if err = errors.Join(err, json.Unmarshal(text, &done)); err != nil {
		m.t.Fatalf("%s restores: %v: %s", p.name, err, said.String())
	}
	if running {
		p.knows(done.Agreement)
	}
	return done.Step
}

// knows fails the test unless the stager of a pod has recorded an agreement.
func (p *pod) knows(agreement int) {
	p.team.t.Helper()
	var home struct{ Restarts []struct{ Agreement int } }
	text, err := os.ReadFile(filepath.Join(p.volume, ".stager", "member"))
	if err = errors.Join(err, json.Unmarshal(text, &home)); err != nil {
		p.team.t.Fatal(err)
	}
	if n := len(home.Restarts); n == 0 || home.Restarts[n-1].Agreement < agreement {
		p.team.t.Errorf("the stager of %s knows of %v, want agreement %d", p.name, home.Restarts, agreement)
	}
}

// together has pods restore, and compares what they begin with.
func (m *team) together(want int, pods ...*pod) {
	m.t.Helper()
	for _, p := range pods {
		if got := p.restores(); got != want {
			m.t.Errorf("%s restored step %d, want %d as all nodes", p.name, got, want)
		}
	}
}

// A step is committed between the restores of two nodes: node 1 began with another step
// than node 0. Later the job ran, and a pod is replaced: all begin with the newest step.
func restoresApart(m *team) {
	pods := m.start("job-a", 2)
	m.save("first", 1, pods...)
	m.committed(1, pods...)
	m.together(1, pods[0])
	m.save("first", 2, pods...)
	m.committed(2, pods...)
	m.together(1, pods[1])

	m.save("second", 3, pods...)
	m.committed(3, pods...)
	kill(pods[1])
	fresh := m.pod("job-a", 1, 2, "")
	m.meet(pods[0], fresh)
	m.together(3, fresh)
	m.save("third", 4, pods[0], fresh)
	m.committed(4, pods[0], fresh)
	m.together(3, pods[0])
	m.newest(4)
	terminate([]int{0}, pods[0], fresh)
}

// After a rollback the step that was committed last is the newest one, not that with the
// highest number.
func rollbackRestore(m *team) {
	pods := m.start("job-a", 2)
	for _, step := range []int{100, 200} {
		m.save("before", step, pods...)
		m.committed(step, pods...)
	}
	m.save("after", 150, pods...)
	m.committed(150, pods...)
	m.together(150, pods...)
	terminate([]int{0}, pods...)
	m.together(150, pods...)
}

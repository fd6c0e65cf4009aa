package group

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// exploreRestores visits every state that a scenario can reach, up to a limit.
func exploreRestores(sc *restoreScenario, limit int) (r result) {
	type visit struct{ parent, move int32 }
	first := sc.start()
	known := map[[16]byte]bool{first.id(): true}
	visits := []visit{{-1, 0}}
	queue := []*restoreWorld{first}
	schedule := func(at int32) (labels []string) {
		var path []int32
		for ; visits[at].parent >= 0; at = visits[at].parent {
			path = append(path, visits[at].move)
		}
		w := sc.start()
		for _, k := range slices.Backward(path) {
			m := w.moves()[k]
			labels, w = append(labels, m.label), m.to
		}
		return labels
	}
	for at := int32(0); int(at) < len(queue); at++ {
		w := queue[at]
		queue[at] = nil
		for i, m := range w.moves() {
			r.transitions++
			id := m.to.id()
			if known[id] {
				continue
			}
			known[id] = true
			visits = append(visits, visit{at, int32(i)})
			queue = append(queue, m.to)
			if m.to.bad != "" {
				r.states, r.bad, r.schedule = len(visits), m.to.bad, schedule(int32(len(visits)-1))
				return r
			}
			if len(visits) >= limit {
				r.states, r.cut = len(visits), true
				return r
			}
		}
	}
	r.states = len(visits)
	return r
}

// restoreScenarios are explored in every state. The long ones run only in the long form.
var restoreScenarios = []struct {
	restoreScenario
	long bool
}{
	{restoreScenario{name: "start", n: 2, commits: 2}, false},
	{restoreScenario{name: "late-commit", n: 2, commits: 1, saves: 1, end: 1}, false},
	{restoreScenario{name: "again", n: 2, commits: 1, saves: 1, end: 1, again: 1}, false},
	{restoreScenario{name: "second-end", n: 2, commits: 1, saves: 2, end: 2}, false},
	{restoreScenario{name: "pod", n: 2, commits: 1, saves: 1, end: 1, pod: 1}, false},
	{restoreScenario{name: "damaged", n: 2, commits: 2, bad: 1}, false},
	{restoreScenario{name: "damaged-again", n: 2, commits: 2, bad: 1, again: 2}, false},
	{restoreScenario{name: "killed", n: 2, commits: 1, saves: 1, end: 1, killed: 1}, false},
	{restoreScenario{name: "resize", n: 2, commits: 1, saves: 1, end: 1, resize: 1}, true},
	{restoreScenario{name: "nothing", n: 2, saves: 1, end: 1, again: 1}, true},
	{restoreScenario{name: "lost", n: 2, commits: 1, saves: 1, end: 1, lost: 1}, true},
	{restoreScenario{name: "three", n: 3, commits: 1, saves: 1, end: 1}, true},
	{restoreScenario{name: "again-twice", n: 2, commits: 1, saves: 2, end: 1, again: 2}, true},
	{restoreScenario{name: "three-again", n: 3, commits: 1, saves: 1, end: 1, again: 1}, true},
	{restoreScenario{name: "damaged-late", n: 2, commits: 2, saves: 1, end: 1, bad: 1, again: 1}, true},
}

// Nodes restore at arbitrary times. Meanwhile steps are committed, pods replaced, steps damaged,
// and responses lost. All nodes must start with one step, the newest that was committed before
// they began.
func TestNodesRestoreOneStep(t *testing.T) {
	for i := range restoreScenarios {
		sc := &restoreScenarios[i]
		t.Run(sc.name, func(t *testing.T) {
			began, limit := time.Now(), 4_000_000
			if !full() {
				if limit = 40_000; sc.long {
					limit = 4_000
				}
			}
			r := exploreRestores(&sc.restoreScenario, limit)
			if r.bad != "" {
				t.Fatalf("after %d states: %v", r.states, r)
			}
			if r.cut && full() {
				t.Errorf("more than %d states", limit)
			}
			t.Logf("%d nodes: %d states, %d transitions, all %v, %.1f s", sc.n, r.states, r.transitions, !r.cut, time.Since(began).Seconds())
		})
	}
}

// Without rule 8, or without a part of it, an exploration finds nodes that start with different
// steps or with an old one.
func TestRestoreRulesAreNeeded(t *testing.T) {
	for _, tt := range []struct {
		name string
		off  restoreRules
		sc   restoreScenario
		want string
	}{
		{"agree", ruleAgree, restoreScenario{n: 2, commits: 1, saves: 1, end: 1}, "node 1 restored step"},
		{"proof", ruleProof, restoreScenario{n: 2, commits: 1, saves: 1, end: 1, again: 1}, "node 1 restored step"},
		{"again", ruleAgain, restoreScenario{n: 2, commits: 1, saves: 1, end: 1}, "node 1 restored step"},
		{"joined", ruleJoined, restoreScenario{n: 2, commits: 1, saves: 1, end: 1, again: 1}, "restored step"},
		{"wait", ruleWait, restoreScenario{n: 2, commits: 2, bad: 1}, "node 1 restored step"},
		{"bad", ruleBad, restoreScenario{n: 2, commits: 2, bad: 1}, "node 1 restored step"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sc := tt.sc
			sc.off = tt.off
			r := exploreRestores(&sc, 400_000)
			if !strings.Contains(r.bad, tt.want) {
				t.Fatalf("without it: got %q after %d states (cut %v), want %q", r.bad, r.states, r.cut, tt.want)
			}
			t.Logf("without it, after %d states: %v", r.states, r)
		})
	}
}

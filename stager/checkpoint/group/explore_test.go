package group

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// result is the result of an exploration.
type result struct {
	states, transitions int
	bad                 string   // the property that was violated
	schedule            []string // the moves that led to the violation
	cut                 bool     // the limit was reached
}

func (r result) String() string {
	return fmt.Sprintf("%s\n  %s", r.bad, strings.Join(r.schedule, "\n  "))
}

// explore visits every state that a scenario can reach, up to a limit. It checks that no state
// violates a property, and that the goal is reachable from every state without a fault.
func explore(sc *scenario, limit int) result {
	type visit struct {
		parent int32
		move   int32
	}
	first := sc.start()
	index := map[[16]byte]int32{first.id(): 0}
	visits := []visit{{-1, 0}}
	before := [][]int32{nil} // by state: its predecessors without a fault
	goal := []bool{sc.reached(first)}
	var r result
	schedule := func(at int32) []string {
		var path []int32
		for ; visits[at].parent >= 0; at = visits[at].parent {
			path = append(path, visits[at].move)
		}
		slices.Reverse(path)
		var labels []string
		w := sc.start()
		for _, k := range path {
			m := w.next()[k]
			labels, w = append(labels, m.label), m.to
			w.id() // it orders timers, as it did when the state was found
		}
		return labels
	}
	for queue := []*world{first}; len(queue) > 0; {
		var following []*world
		at := int32(len(visits) - len(queue))
		for k, w := range queue {
			queue[k] = nil
			from := at + int32(k)
			for i, m := range w.next() {
				r.transitions++
				id := m.to.id()
				to, ok := index[id]
				if !ok {
					to = int32(len(visits))
					index[id] = to
					visits = append(visits, visit{from, int32(i)})
					before = append(before, nil)
					goal = append(goal, sc.reached(m.to))
					if m.to.bad != "" {
						r.states, r.bad, r.schedule = len(visits), m.to.bad, schedule(to)
						return r
					}
					if len(visits) < limit {
						following = append(following, m.to)
					} else {
						r.cut = true
					}
				}
				if !m.fault && to != from {
					before[to] = append(before[to], from)
				}
			}
		}
		if r.cut {
			break
		}
		queue = following
	}
	r.states = len(visits)
	if r.cut {
		return r
	}
	if stuck := unreachable(before, goal); stuck >= 0 {
		r.bad, r.schedule = "from here the last checkpoint is never committed, or a save never ends", schedule(stuck)
	}
	return r
}

// unreachable returns the first state from which no goal is reachable, or -1.
func unreachable(before [][]int32, goal []bool) int32 {
	good := slices.Clone(goal)
	var todo []int32
	for i, g := range good {
		if g {
			todo = append(todo, int32(i))
		}
	}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, b := range before[at] {
			if !good[b] {
				good[b] = true
				todo = append(todo, b)
			}
		}
	}
	return int32(slices.Index(good, false))
}

// reached reports whether the final state is correct: the trainers of each job are done, nothing
// is open, and the last checkpoint is committed as last written.
func (sc *scenario) reached(w *world) bool {
	if len(w.vacant) > 0 {
		return false
	}
	jobs := make(map[string]bool)
	if slices.ContainsFunc(w.actors, func(a *actor) bool { return a.dead && !a.drains && !a.left }) {
		return true // a job that lost a pod permanently waits
	}
	for _, a := range w.actors {
		if a.dead {
			continue
		}
		if len(a.m.saves) > 0 {
			return false
		}
		if a.m.member.phase == memberRefused {
			continue
		}
		if !a.drains {
			if a.trainer != trains || a.pos < len(sc.saves) {
				return false
			}
			jobs[a.cfg.Job] = true
		}
	}
	left := slices.ContainsFunc(w.actors, func(a *actor) bool { return a.left })
	for job := range jobs {
		if !left && !sc.saved(w, job) {
			return false
		}
	}
	return sc.off != 0 && sc.off != rule(5) || sc.faults() || w.allAnnounced()
}

func (sc *scenario) faults() bool {
	return sc.crash+sc.replace+sc.resize+sc.second+sc.kill+sc.lost+sc.restart+sc.leave+sc.away > 0
}

// saved reports whether the last checkpoint of a job is committed. Another job may have replaced
// it.
func (sc *scenario) saved(w *world, job string) bool {
	last := sc.saves[len(sc.saves)-1]
	writing := 0
	for _, s := range sc.saves {
		if s == last {
			writing++
		}
	}
	body, _ := w.get(StepDir(last, 0) + "/" + commitName)
	c, ok := readModelCommit(object{commitName, body})
	if !ok || c.Group.Provisional && sc.mode != "quiet" {
		return false
	}
	if c.Group.Job != job {
		return true
	}
	for _, p := range c.Parts {
		want := fmt.Sprintf(`"run":%d,"writing":%d,`, w.lastRun(job), writing)
		if p.Payload != nil && !strings.Contains(string(p.Payload), want) {
			return false
		}
	}
	return true
}

// allAnnounced reports whether every announced save was committed.
func (w *world) allAnnounced() bool {
	for _, o := range w.store {
		if a, err := DecodeAnnouncement([]byte(o.body)); err == nil && strings.HasPrefix(o.key, ViewsPrefix) && !slices.Contains(w.done, SaveID{a.View, a.Save}) &&
			!(w.sc.rewrites() && w.failed(SaveID{a.View, a.Save})) {
			return false
		}
	}
	return true
}

func full() bool { return os.Getenv("STAGER_TRIAL") == "full" }

// scenarios are explored in every state in the long form, except that a scenario with its own
// bound is explored to that number of nearest states. The short form visits 800 states.
var scenarios = []scenario{
	{name: "start", n: 2, saves: []int64{1}, mode: "job", cold: true},
	{name: "two-steps", n: 2, saves: []int64{1, 2}, mode: "each"},
	{name: "bursts", n: 2, saves: []int64{1}, mode: "job", halves: true},
	{name: "bursts-each", n: 2, saves: []int64{1}, mode: "each", halves: true},
	{name: "rank0", n: 2, saves: []int64{1}, mode: "rank0"},
	{name: "quiet", n: 2, saves: []int64{1}, mode: "quiet"},
	{name: "re-save", n: 2, saves: []int64{1, 1}, mode: "each"},
	{name: "re-save-bursts", n: 2, saves: []int64{1, 1}, mode: "each", halves: true, most: 400_000},
	{name: "rollback", n: 2, saves: []int64{2, 1}, mode: "each"},
	{name: "rollback-job", n: 2, saves: []int64{2, 1}, mode: "job"},
	{name: "rollback-crash", n: 2, saves: []int64{2, 1}, mode: "job", crash: 1},
	{name: "rollback-again", n: 2, saves: []int64{1, 2, 1}, mode: "each", most: 400_000},
	{name: "restart", n: 2, saves: []int64{1, 2}, mode: "job", restart: 1},
	{name: "restart-each", n: 2, saves: []int64{1, 2}, mode: "each", restart: 1, most: 400_000},
	{name: "restart-rank0", n: 2, saves: []int64{1, 2}, mode: "rank0", restart: 1},
	{name: "crash", n: 2, saves: []int64{1}, mode: "job", crash: 1},
	{name: "away", n: 2, saves: []int64{1, 2}, mode: "each", away: 1, brief: true},
	{name: "away-re-save", n: 2, saves: []int64{1, 1}, mode: "each", away: 1, brief: true},
	{name: "away-rollback", n: 2, saves: []int64{2, 1}, mode: "each", away: 1, brief: true},
	{name: "replace", n: 2, saves: []int64{1}, mode: "each", replace: 1, brief: true, most: 400_000},
	{name: "replace-drain", n: 2, saves: []int64{1}, mode: "each", replace: 1, drain: true, brief: true, most: 400_000},
	{name: "lost", n: 2, saves: []int64{1}, mode: "job", lost: 1},
	{name: "resize", n: 3, saves: []int64{1}, mode: "rank0", resize: 1, brief: true},
	{name: "second-job", n: 2, saves: []int64{1}, mode: "rank0", second: 1},
	{name: "second-job-after-death", n: 2, saves: []int64{1}, mode: "rank0", second: 1, kill: 2},
	{name: "leave", n: 2, saves: []int64{1}, mode: "each", leave: 1},
	{name: "leave-job", n: 2, saves: []int64{1, 2}, mode: "job", leave: 1},
	{name: "leave-quiet", n: 3, saves: []int64{1}, mode: "quiet", leave: 2},
	{name: "leave-return", n: 2, saves: []int64{1}, mode: "each", leave: 1, crash: 1},
	{name: "retention", n: 2, saves: []int64{1, 2}, mode: "job", sweep: 1},
}

func TestExploreTwoAndThreeNodes(t *testing.T) {
	for i := range scenarios {
		sc := &scenarios[i]
		t.Run(sc.name, func(t *testing.T) {
			began := time.Now()
			limit := 800
			if full() {
				limit = cmp.Or(sc.most, 4_000_000)
			}
			r := explore(sc, limit)
			if r.bad != "" {
				t.Fatalf("after %d states: %v", r.states, r)
			}
			if r.cut && full() && sc.most == 0 {
				t.Errorf("more than %d states", limit)
			}
			t.Logf("%d nodes: %d states, %d transitions, %.1f s, all of them: %t", sc.n, r.states, r.transitions, time.Since(began).Seconds(), !r.cut)
		})
	}
}

// walk makes one random run.
func walk(sc *scenario, seed uint64, steps int) (r result) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	w := sc.start()
	for range steps {
		moves := w.next()
		if len(moves) == 0 {
			break
		}
		m := moves[rnd.IntN(len(moves))]
		r.transitions++
		r.schedule = append(r.schedule, m.label)
		if w = m.to; w.bad != "" {
			r.bad = w.bad
			return r
		}
	}
	return r
}

func TestRandomRunsOfEightNodes(t *testing.T) {
	runs, steps := 4, 150
	if full() {
		runs, steps = 2000, 600
	}
	total := 0
	for seed := range runs {
		sc := &scenario{
			n: 8, saves: []int64{1, 2, 2}, mode: []string{"job", "each", "rank0"}[seed%3], halves: seed%2 == 0, drain: seed%4 < 2,
			crash: 2, replace: 2, second: seed % 2, lost: 3, sweep: 2, leave: 2,
		}
		if sc.mode == "job" { // nodes without a sign cannot tell writings of a step apart
			sc.saves = []int64{1, 2, 3}
		}
		r := walk(sc, uint64(seed), steps)
		if total += r.transitions; r.bad != "" {
			t.Fatalf("seed %d: %v", seed, r)
		}
	}
	t.Logf("%d runs, %d transitions", runs, total)
}

package group

import (
	"container/heap"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A thousand nodes restore in virtual time. The store takes 20 ms per request, and each node
// needs a second for the files of the checkpoint.

const restoreTime = time.Second

// restoring is a job whose nodes restore at the same time.
type restoring struct {
	world     *restoreWorld // the destination
	now       time.Duration
	order     int
	queue     timeline
	nodes     []*Restorer
	requests  []int         // by node
	waited    time.Duration // the longest time that a node spent on requests, without the files
	began     []time.Duration
	fetched   []int // by node: how often it restored files
	reports   []*Report
	starts    int
	remaining int
}

func newRestoring(n, commits int) *restoring {
	sc := &restoreScenario{n: 1, commits: commits}
	return &restoring{world: sc.start(), reports: make([]*Report, n)}
}

func (f *restoring) push(at time.Duration, t timed) {
	f.order++
	t.at, t.order = at, f.order
	heap.Push(&f.queue, t)
}

// start starts a restore on each node, the last one after spread.
func (f *restoring) start(t *testing.T, spread time.Duration) {
	t.Helper()
	n := len(f.reports)
	f.starts++
	f.nodes, f.requests, f.waited, f.remaining = nil, make([]int, n), 0, n
	f.began, f.fetched, f.reports = make([]time.Duration, n), make([]int, n), make([]*Report, n)
	for i := range n {
		r, err := NewRestorer(RestoreConfig{Job: modelJob, Index: i, Count: n, Pod: fmt.Sprintf("pod-%d-%d", f.starts, i), Step: Nothing})
		if err != nil {
			t.Fatal(err)
		}
		f.nodes = append(f.nodes, r)
		f.began[i] = f.now + spread*time.Duration(i*37%n)/time.Duration(n)
		f.push(f.began[i], timed{to: i, event: Event{What: Start}})
	}
}

// run executes events until all nodes have ended.
func (f *restoring) run(t *testing.T) {
	t.Helper()
	for events := 0; f.remaining > 0; events++ {
		if f.queue.Len() == 0 || events > 100*len(f.nodes) {
			t.Fatalf("%d nodes have not ended after %d events", f.remaining, events)
		}
		e := heap.Pop(&f.queue).(timed)
		f.now = e.at
		if e.act.Do != 0 { // the request arrives at the store
			f.push(f.now, timed{to: e.to, event: f.exec(e.act)})
			continue
		}
		for _, act := range f.nodes[e.to].Step(e.event) {
			f.act(e.to, act)
		}
	}
}

// exec executes a request. It finds the last agreement without a look at every record.
func (f *restoring) exec(act Action) Event {
	if act.Do != Last {
		return f.world.exec(act)
	}
	e := Event{What: Answer, For: act.For, Outcome: NotExist}
	for _, o := range slices.Backward(f.world.store) { // sorted, and numbers have leading zeros
		if strings.HasPrefix(o.key, act.Key) {
			e.Outcome, e.Body = OK, []byte(o.body)
			break
		}
	}
	return e
}

func (f *restoring) act(i int, act Action) {
	cost := 1
	switch act.Do {
	case Tell:
		if act.Report.Topic != Waiting {
			f.reports[i] = &act.Report
			f.waited = max(f.waited, f.now-f.began[i]-time.Duration(f.fetched[i])*restoreTime)
			f.remaining--
		}
		return
	case Wait:
		f.push(f.now+act.After, timed{to: i, event: Event{What: Fired, For: act.For}})
		return
	case Fetch:
		f.fetched[i]++
		f.push(f.now+restoreTime, timed{to: i, act: act})
		return
	case Last, Read, Newest: // one request to list, and one to read
		cost = 2
	}
	f.requests[i] += cost
	f.push(f.now+time.Duration(cost)*storeLatency, timed{to: i, act: act})
}

// check checks that all nodes restored the wanted step, at the stated cost.
func (f *restoring) check(t *testing.T, step int64) {
	t.Helper()
	most, all := 0, 0
	for i, r := range f.reports {
		if r.Topic != RestoreAgreed || r.Step != step {
			t.Fatalf("node %d: got topic %d and step %d, want step %d as agreed", i, r.Topic, r.Step, step)
		}
		if f.fetched[i] != 1 {
			t.Errorf("node %d restored files %d times, want once", i, f.fetched[i])
		}
		most, all = max(most, f.requests[i]), all+f.requests[i]
	}
	agreements := 0
	for _, o := range f.world.store {
		if strings.HasPrefix(o.key, RestoresPrefix) {
			agreements++
		}
	}
	t.Logf("%d requests of one node at most, %d of all; %v for requests at most; %d agreements", most, all, f.waited, agreements)
	if most > 20 || f.waited > time.Second {
		t.Errorf("got %d requests of one node and %v for them, want 20 and 1s at most", most, f.waited)
	}
}

// However many nodes restore, each sends a limited number of requests and agrees within a second.
// They start at one moment or over a minute, and begin, come back after the job ran, or come back
// before it ran.
func TestThousandNodesRestoreOneStep(t *testing.T) {
	n := 100
	if full() {
		n = 1000
	}
	for _, spread := range []time.Duration{0, time.Minute} {
		t.Run(fmt.Sprint("over ", spread), func(t *testing.T) {
			f := newRestoring(n, 3)
			f.start(t, spread)
			f.run(t)
			f.check(t, 2)

			last, _ := f.world.lastAgreement()
			f.world.commits = append(f.world.commits, saved{id: 3, seen: last})
			f.start(t, spread) // the job ran
			f.run(t)
			f.check(t, 3)

			f.world.commits = append(f.world.commits, saved{id: 4, seen: last}) // of the run before, committed late
			f.start(t, spread)
			f.run(t)
			f.check(t, 3)
		})
	}
}

package group

import (
	"cmp"
	"container/heap"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A thousand members run in virtual time. The store takes 20 ms per request and serves 32 reads
// of a member at a time.

const storeLatency = 20 * time.Millisecond

type timed struct {
	at    time.Duration
	order int
	to    int
	event Event
	timer int // number of the timer; 0: no timer
	act   Action
}

type timeline []timed

func (q timeline) Len() int { return len(q) }
func (q timeline) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[i].at, q[j].at), cmp.Compare(q[i].order, q[j].order)) < 0
}
func (q timeline) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *timeline) Push(x any)   { *q = append(*q, x.(timed)) }
func (q *timeline) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}

type fleet struct {
	now      time.Duration
	order    int
	queue    timeline
	members  []*Machine
	timers   []map[Task]int
	read     []map[string]string // versions that Gather has read, by member
	store    map[string]string
	upload   []time.Duration
	requests int // for checkpoints
	kept     int // for member records and the view
	viewed   int
	safe     int
	lastPart time.Duration
	commit   time.Duration
}

func (f *fleet) push(t timed) {
	f.order++
	t.order = f.order
	heap.Push(&f.queue, t)
}

func (f *fleet) step(i int, e Event) {
	for _, a := range f.members[i].Step(e) {
		switch a.Do {
		case Tell:
			switch a.Report.Topic {
			case Viewed:
				f.viewed++
			case Committed:
				f.safe++
			}
		case Wait:
			f.order++
			f.timers[i][a.For] = f.order
			f.push(timed{at: f.now + a.After, to: i, timer: f.order, event: Event{What: Fired, For: a.For}})
		case Upload:
			f.push(timed{at: f.now + f.upload[i], to: i, act: a})
		case Scan:
			f.push(timed{at: f.now + storeLatency, to: i, act: a})
		default:
			f.push(timed{at: f.now + storeLatency, to: i, act: a})
		}
	}
}

// run executes events until done.
func (f *fleet) run(done func() bool, until time.Duration) {
	for !done() && f.queue.Len() > 0 && f.queue[0].at <= until {
		t := heap.Pop(&f.queue).(timed)
		f.now = t.at
		switch {
		case t.timer != 0:
			if f.timers[t.to][t.event.For] == t.timer {
				f.step(t.to, t.event)
			}
		case t.act.Do != 0:
			e, more := f.exec(t.to, t.act)
			f.push(timed{at: f.now + more, to: t.to, event: e})
		default:
			f.step(t.to, t.event)
		}
	}
}

// exec executes a request and returns the additional latency of its response beyond the first
// request.
func (f *fleet) exec(i int, a Action) (Event, time.Duration) {
	e := Event{What: Answer, For: a.For, Outcome: OK}
	count := &f.requests
	if a.For.Of == OfMember || a.For.Of == OfView {
		count = &f.kept
	}
	*count++
	switch a.Do {
	case Upload:
		*count-- // data, not a small request
		e.Body, _ = json.Marshal("data of a node")
	case Scan:
		*count--
		e.Outcome = NotExist
	case Newest, Look:
	case Read:
		body, ok := f.store[a.Key]
		if e.Body, e.Version = []byte(body), body; !ok {
			e.Outcome = NotExist
			return e, 0
		}
		if a.Key == ViewKey && f.read[i][a.Key] == body { // it is found unchanged
			return e, 0
		}
		f.read[i][a.Key] = body
		*count++ // one request to find the record, and one to read it
		return e, storeLatency
	case Gather:
		news := 0
		for key, body := range f.store {
			if strings.HasPrefix(key, a.Key) {
				e.Records = append(e.Records, Record{key, []byte(body), body, OK})
				if f.read[i][key] != body {
					f.read[i][key] = body
					news++
				}
			}
		}
		slices.SortFunc(e.Records, func(a, b Record) int { return cmp.Compare(a.Key, b.Key) })
		*count += news + len(e.Records)/1000
		return e, time.Duration((news+31)/32) * storeLatency
	default:
		there, ok := f.store[a.Key]
		switch {
		case a.Version == "" && ok:
			e.Outcome = Exists
		case a.Version != "" && there != a.Version:
			e.Outcome = Changed
		default:
			body := string(a.Body)
			if a.Do == Commit {
				text, _ := json.Marshal(modelCommit{commitHeader, a.Save.Step, a.Joined, nil})
				body, f.commit = string(text), f.now
			}
			if strings.Contains(a.Key, "/"+partsName+"/") {
				f.lastPart = f.now
			}
			f.store[a.Key], e.Version = body, body
		}
	}
	return e, 0
}

func TestThousandMembersCommitWithinASecond(t *testing.T) {
	n := 100
	if full() {
		n = 1000
	}
	f := &fleet{store: make(map[string]string)}
	for i := range n {
		m, err := New(Config{Job: "job", Index: i, Count: n, Boot: fmt.Sprintf("boot-%d", i)})
		if err != nil {
			t.Fatal(err)
		}
		f.members, f.timers, f.read = append(f.members, m), append(f.timers, make(map[Task]int)), append(f.read, make(map[string]string))
		f.upload = append(f.upload, 20*time.Second+time.Duration(i*37%n)*10*time.Millisecond)
		f.push(timed{at: time.Duration(i*7%n) * time.Millisecond, to: i, event: Event{What: Start}})
	}
	f.run(func() bool { return f.viewed == n }, time.Hour)
	if f.viewed != n {
		t.Fatalf("got %d members in the view, want %d", f.viewed, n)
	}
	t.Logf("all are in one view after %v and %d requests", f.now.Round(time.Millisecond), f.requests+f.kept)
	f.run(func() bool { return false }, f.now+5*time.Minute)
	const while = 10 * time.Minute
	kept, idle := f.kept, f.requests
	f.run(func() bool { return false }, f.now+while)
	if rate := float64(f.kept-kept) / while.Seconds(); rate > 31 {
		t.Errorf("got %.1f requests per second to keep the view, want at most about 30", rate)
	} else {
		t.Logf("without a checkpoint: %.1f requests per second to keep the view, %.1f for announcements", rate, float64(f.requests-idle)/while.Seconds())
	}
	before, began := f.requests, f.now
	for i := range n { // node 7 has the job's sign; the others have files that appeared
		view, _ := f.members[i].Position()
		f.push(timed{at: f.now, to: i, event: Event{What: Expect}})
		if i == 7 {
			f.push(timed{at: f.now + time.Second, to: i, event: Event{What: Complete, Local: Local{View: view, Step: 100, Writing: 1, Edition: 1, Sign: SignJob}}})
		}
	}
	f.run(func() bool { return f.safe == n }, f.now+time.Hour)
	if f.safe != n {
		t.Fatalf("got %d members that report the checkpoint safe, want %d", f.safe, n)
	}
	requests, commit := f.requests-before, f.commit-f.lastPart
	t.Logf("a checkpoint of %v: %d requests, COMMIT %v after the last part", (f.now - began).Round(time.Millisecond), requests, commit)
	if requests >= 10_000 || commit > time.Second {
		t.Errorf("got %d requests and COMMIT %v after the last part, want fewer than 10000 and 1s at most", requests, commit)
	}
}

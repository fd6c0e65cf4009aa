package group

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// The model is a store, the nodes of a job that restore at their own times, and their trainers.
// Trainers wait for each other: none saves before all have restored.

type restorerState uint8

const (
	idle     restorerState = iota // nothing runs
	agreeing                      // stager restore runs
	waits                         // has restored; the trainer waits for the others
	runs                          // trains
)

// restorer is the process at an index.
type restorer struct {
	state restorerState
	pod   int
	m     *Restorer
	pend  []Action
	timer bool
	got   int // commit that it has restored; -1: none
}

// saved is a committed checkpoint of the model.
type saved struct {
	id   int
	seen int // number of the last agreement when its files appeared
	run  int // run of the trainers that wrote it
	bad  bool
}

// restoreScenario lists the events that may happen, and how often.
type restoreScenario struct {
	name    string
	n       int
	commits int // committed initially
	// How often each event may happen:
	saves  int // files of a checkpoint are written
	end    int // all trainers exit while the job runs
	again  int // one that waits for the others exits
	killed int // one is killed while it restores
	pod    int // a pod is replaced when its trainer exits
	bad    int // a checkpoint is damaged
	lost   int // the response to a write is lost
	resize int // the job returns with one node more or less
	off    restoreRules
}

type restoreWorld struct {
	sc      *restoreScenario
	nodes   []*restorer
	store   []object
	commits []saved // oldest first
	written []saved // and not committed so far
	limbo   []Action
	left    restoreScenario
	next    int
	pods    int
	run     int // of the trainers
	floor   int // what the job must not lose
	bad     string
}

const modelJob = "job-a"

func (sc *restoreScenario) start() *restoreWorld {
	w := &restoreWorld{sc: sc, left: *sc, floor: -1}
	for range sc.commits {
		w.commits = append(w.commits, saved{id: w.next})
		w.floor = w.next
		w.next++
	}
	for range sc.n {
		w.add()
	}
	return w
}

func (w *restoreWorld) add() {
	w.pods++
	w.nodes = append(w.nodes, &restorer{pod: w.pods, got: -1})
}

func (w *restoreWorld) clone() *restoreWorld {
	c := *w
	c.nodes, c.store, c.commits = slices.Clone(w.nodes), slices.Clone(w.store), slices.Clone(w.commits)
	c.written, c.limbo = slices.Clone(w.written), slices.Clone(w.limbo)
	return &c
}

// own returns a copy of a node that may be changed.
func (w *restoreWorld) own(i int) *restorer {
	a := *w.nodes[i]
	if a.m != nil {
		m := *a.m
		a.m = &m
	}
	a.pend = slices.Clone(a.pend)
	w.nodes[i] = &a
	return &a
}

func (w *restoreWorld) violated(format string, args ...any) {
	if w.bad == "" {
		w.bad = fmt.Sprintf(format, args...)
	}
}

func (w *restoreWorld) get(key string) (string, bool) {
	i, ok := slices.BinarySearchFunc(w.store, key, func(o object, k string) int { return cmp.Compare(o.key, k) })
	if !ok {
		return "", false
	}
	return w.store[i].body, true
}

func (w *restoreWorld) write(act Action) (o Outcome) {
	there, ok := w.get(act.Key)
	switch {
	case act.Do == Create && ok:
		return Exists
	case act.Do == Replace && (!ok || there != act.Version):
		return Changed
	}
	w.store = slices.DeleteFunc(w.store, func(o object) bool { return o.key == act.Key })
	w.store = append(w.store, object{act.Key, string(act.Body)})
	slices.SortFunc(w.store, func(a, b object) int { return cmp.Compare(a.key, b.key) })
	return OK
}

// lastAgreement returns the number and body of the last agreement.
func (w *restoreWorld) lastAgreement() (number int, body string) {
	for _, o := range w.store {
		if n := AgreementNumber(modelJob, o.key); n > number {
			number, body = n, o.body
		}
	}
	return number, body
}

func digestOfSaved(id int) string { return fmt.Sprint("sha256:", id) }

func (s *saved) candidate() Candidate {
	c := Candidate{Found: Found{Step: int64(s.id), Dir: StepDir(int64(s.id), 0), Digest: digestOfSaved(s.id)}, Restored: s.seen}
	c.Joined = &Joined{Job: modelJob, View: strings.Repeat("a", 32), Save: s.id + 1}
	return c
}

// exec executes a request.
func (w *restoreWorld) exec(act Action) Event {
	e := Event{What: Answer, For: act.For, Outcome: OK}
	switch act.Do {
	case Read:
		body, ok := w.get(act.Key)
		if e.Body, e.Version = []byte(body), body; !ok {
			e.Outcome = NotExist
		}
	case Last:
		n, body := w.lastAgreement()
		if e.Body = []byte(body); n == 0 {
			e.Outcome = NotExist
		}
	case Gather:
		for _, o := range w.store {
			if strings.HasPrefix(o.key, act.Key) {
				e.Records = append(e.Records, Record{o.key, []byte(o.body), o.body, OK})
			}
		}
	case Newest:
		e.Outcome = NotExist
		for i := range slices.Backward(w.commits) {
			c := w.commits[i].candidate()
			if e.Outcome != OK && !slices.Contains(act.Bad, c.Digest) {
				e.Outcome, e.Found = OK, c.Found
			}
		}
		for i := range slices.Backward(w.commits) {
			c := w.commits[i].candidate()
			if c.Digest == act.Past.Digest {
				break
			}
			e.Since = append(e.Since, c)
		}
	case Fetch:
		i := slices.IndexFunc(w.commits, func(s saved) bool { return digestOfSaved(s.id) == act.Past.Digest })
		if i < 0 || w.commits[i].bad {
			e.Outcome = Corrupt
		}
	default:
		e.Outcome = w.write(act)
		e.Version = string(act.Body)
	}
	return e
}

// feed passes an event to a node.
func (w *restoreWorld) feed(i int, e Event) {
	a := w.nodes[i]
	for _, act := range a.m.Step(e) {
		switch {
		case act.Do == Wait:
			a.timer = true
		case act.Do != Tell:
			a.pend = append(a.pend, act)
		case act.Report.Topic == RestoreAgreed:
			a.state, a.m, a.got = waits, nil, int(act.Report.Step)
			w.meet()
		case act.Report.Topic != Waiting: // it ends with an error
			a.state, a.m = idle, nil
		}
	}
}

// meet starts the trainers when all nodes have restored.
func (w *restoreWorld) meet() {
	if slices.ContainsFunc(w.nodes, func(a *restorer) bool { return a.state != waits }) {
		return
	}
	for i, a := range w.nodes {
		if a.got != w.nodes[0].got {
			w.violated("node %d restored step %d, and node 0 step %d", i, a.got, w.nodes[0].got)
		}
	}
	if got := w.nodes[0].got; got < w.floor && !slices.ContainsFunc(w.commits, func(s saved) bool { return s.id > got && s.bad }) {
		w.violated("all nodes restored step %d, and step %d was committed before the job began again", got, w.floor)
	}
	w.run++
	for i := range w.nodes {
		w.own(i).state = runs
	}
}

// id returns a hash of all data that determine the next moves.
func (w *restoreWorld) id() [16]byte {
	h := sha256.New()
	for _, a := range w.nodes {
		fmt.Fprint(h, a.state, a.pod, a.timer, a.got)
		if a.m != nil {
			m := a.m
			fmt.Fprint(h, m.phase, m.began, m.last.Number, m.last.Digest, m.own, m.version, m.found != nil, m.ran != nil, m.bad, m.mine.Number, m.mine.Digest, m.mine.Cause)
		}
		for _, p := range a.pend {
			fmt.Fprint(h, p.Do, p.Key, string(p.Body), p.Version, p.Past.Number, p.Bad)
		}
	}
	fmt.Fprint(h, w.store, w.commits, w.written, len(w.limbo))
	for _, l := range w.limbo {
		fmt.Fprint(h, l.Key, string(l.Body), l.Version)
	}
	fmt.Fprint(h, w.left, w.run, w.floor, w.bad)
	return [16]byte(h.Sum(nil)[:16])
}

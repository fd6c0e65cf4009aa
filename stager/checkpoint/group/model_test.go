package group

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// The model is a world of members, a store, trainers and a sweeper. Each transition is one event
// that can happen next. Worlds and actors are immutable.

// content is what a trainer wrote on one node.
type content struct {
	Step    int64 `json:"step"`
	Run     int   `json:"run"` // of the trainer
	Writing int   `json:"writing"`
	Whole   bool  `json:"whole"`
}

// payloadOf is the payload of a part in the model.
type payloadOf struct {
	content
	Data string `json:"data"`
}

type holding struct {
	Local
	content content
}

// print returns a name for the state of the files.
func (h *holding) print() string {
	return fmt.Sprint(h.content.Run, "/", h.content.Writing, "/", h.content.Whole)
}

type trainerState uint8

const (
	down trainerState = iota
	trains
)

// actor is a stager process with its trainer.
type actor struct {
	name    string
	cfg     Config
	m       *Machine
	pend    []Action // pending requests
	timers  []Task
	dead    bool
	left    bool // in order, at the end of its trainer
	drains  bool // replaced, but still running
	trainer trainerState
	run     int
	round   int  // of the last restore
	pos     int  // in the scenario's saves
	half    bool // half of the current save is written
	whole   bool // the leader waits for the others
	guessed bool
	disk    []holding // the last files that the trainer wrote, one entry per step
	held    []holding // the snapshots that stager has of them
	counts  Writings
	key     []byte
}

// scenario is the initial state of a world, and the events that may happen.
type scenario struct {
	name   string
	n      int
	saves  []int64
	mode   string // job, each, rank0 or quiet
	halves bool   // checkpoints are written in two bursts
	cold   bool   // starts before registration
	misses bool   // a node may miss that a writing is complete before the next one replaces it
	lazy   bool   // reads are pending, too, instead of immediate
	brief  bool   // uploads, registration, and the start of a new view are immediate: other scenarios interleave them
	// How often each event may happen:
	crash, replace, resize, second, kill, lost, sweep, restart, leave, away int
	drain                                                                   bool // a replaced member keeps running
	victim                                                                  int  // the member whose pod is replaced, or whose stager is away, from 1; 0: any
	most                                                                    int  // maximum number of states in the long form; 0: all
	off                                                                     rules
}

type object struct{ key, body string }

type world struct {
	sc     *scenario
	actors []*actor
	store  []object // sorted by key
	limbo  []Action // writes that may still happen after their response was lost
	left   struct{ crash, replace, resize, second, kill, lost, sweep, restart, leave, away int }
	runs   int // number of trainer runs
	done   []SaveID
	vacant []Config // of removed pods that are not replaced yet
	boots  int
	bad    string
}

func (sc *scenario) start() *world {
	w := &world{sc: sc}
	w.left.crash, w.left.replace, w.left.resize, w.left.second = sc.crash, sc.replace, sc.resize, sc.second
	w.left.kill, w.left.lost, w.left.sweep, w.left.restart, w.left.leave, w.left.away = sc.kill, sc.lost, sc.sweep, sc.restart, sc.leave, sc.away
	w.begin("job-a", sc.n)
	if sc.cold {
		return w
	}
	seen := map[[16]byte]bool{}
	for !w.running() { // without faults, in order, and without repeating a state
		moves := w.next()
		i := slices.IndexFunc(moves, func(m move) bool { return !m.fault && !seen[m.to.id()] })
		if i < 0 {
			panic("the trainers never start")
		}
		w = moves[i].to
		seen[w.id()] = true
	}
	return w
}

func (w *world) running() bool {
	return !slices.ContainsFunc(w.actors, func(a *actor) bool { return a.trainer != trains })
}

// begin adds the members of a job.
func (w *world) begin(job string, n int) {
	w.runs++
	for i := range n {
		w.add(job, i, n)
	}
}

func (w *world) add(job string, index, n int) {
	w.boots++
	a := &actor{
		name: fmt.Sprintf("%d(b%d)", index, w.boots), run: w.runs - 1,
		cfg: Config{Job: job, Index: index, Count: n, Boot: fmt.Sprintf("b%d", w.boots), Conflict: ConflictOverwrite, Stagger: 1, TakeOver: 1, Patience: 1},
	}
	if job != "job-a" {
		a.name = "B" + a.name
	}
	w.actors = append(w.actors, a)
	w.boot(a)
}

// boot starts a process with an empty memory.
func (w *world) boot(a *actor) {
	m, err := New(a.cfg)
	if err != nil {
		panic(err)
	}
	m.off = w.sc.off
	a.m, a.pend, a.timers = m, nil, nil
	w.feed(a, Event{What: Start})
}

// clone copies a world, and the actor i so that it may be changed.
func (w *world) clone(i int) (*world, *actor) {
	c := *w
	c.actors = slices.Clone(w.actors)
	c.store = slices.Clone(w.store)
	c.done = slices.Clone(w.done)
	c.limbo = slices.Clone(w.limbo)
	c.vacant = slices.Clone(w.vacant)
	if i < 0 {
		return &c, nil
	}
	return &c, c.own(i)
}

func (w *world) own(i int) *actor {
	a := *w.actors[i]
	a.m = a.m.clone()
	a.pend, a.timers, a.disk, a.held = slices.Clone(a.pend), slices.Clone(a.timers), slices.Clone(a.disk), slices.Clone(a.held)
	a.key = nil
	w.actors[i] = &a
	return &a
}

func (m *Machine) clone() *Machine {
	c := *m
	c.ready, c.saves = slices.Clone(m.ready), slices.Clone(m.saves)
	c.log.known = slices.Clone(m.log.known)
	return &c
}

// feed passes an event to an actor's machine and executes the actions that complete at once.
func (w *world) feed(a *actor, e Event) {
	for queue := []Event{e}; len(queue) > 0; queue = queue[1:] {
		for _, act := range a.m.Step(queue[0]) {
			if act.Do != Tell {
				a.timers = slices.DeleteFunc(a.timers, func(t Task) bool { return t == act.For })
			}
			switch act.Do {
			case Tell:
				w.reported(a, act.Report)
			case Wait:
				a.timers = append(a.timers, act.For)
			default:
				if w.sc.atOnce(act) {
					queue = append(queue, w.exec(a, act))
					continue
				}
				a.pend = append(a.pend, act)
			}
		}
	}
}

// atOnce reports whether a request completes immediately, so that no other event can happen
// before.
func (sc *scenario) atOnce(act Action) bool {
	switch act.Do {
	case Read, Gather, Look, Newest:
		return !sc.lazy
	}
	return sc.brief && (act.Do == Upload || act.For.Of == OfMember)
}

func (w *world) get(key string) (string, bool) {
	i, ok := slices.BinarySearchFunc(w.store, key, func(o object, k string) int { return cmp.Compare(o.key, k) })
	if !ok {
		return "", false
	}
	return w.store[i].body, true
}

func (w *world) put(key, body string) {
	i, ok := slices.BinarySearchFunc(w.store, key, func(o object, k string) int { return cmp.Compare(o.key, k) })
	if ok {
		w.store[i].body = body
	} else {
		w.store = slices.Insert(w.store, i, object{key, body})
	}
}

func (w *world) remove(key string) {
	w.store = slices.DeleteFunc(w.store, func(o object) bool { return o.key == key })
}

// exec executes a request. The version of an object is its content, like an ETag.
func (w *world) exec(a *actor, act Action) Event {
	e := Event{What: Answer, For: act.For, Outcome: OK}
	switch act.Do {
	case Read:
		body, ok := w.get(act.Key)
		if e.Body, e.Version = []byte(body), body; !ok {
			e.Outcome = NotExist
		}
	case Gather:
		for _, o := range w.store {
			if strings.HasPrefix(o.key, act.Key) {
				e.Records = append(e.Records, Record{o.key, []byte(o.body), o.body, OK})
			}
		}
	case Look:
		for _, p := range act.Parts {
			if !w.dataThere(p.Payload) {
				e.Outcome = NotExist
			}
		}
	case Newest:
		e.Outcome = NotExist
		for _, o := range w.store {
			if c, ok := readModelCommit(o); ok && !c.Group.Provisional && (e.Outcome == NotExist || c.Step >= e.Found.Step) {
				e.Outcome, e.Found = OK, Found{c.Step, StepDir(c.Step, 0), digestBytes([]byte(o.body))}
			}
		}
	case Scan, Upload:
		w.local(a, act, &e)
	case Create, Replace, Commit:
		w.write(act, &e)
	}
	return e
}

// local scans for this node's files of a save, or uploads them.
func (w *world) local(a *actor, act Action, e *Event) {
	if act.Do == Scan {
		w.scan(a, act.Save, e)
		return
	}
	i := slices.IndexFunc(a.held, func(h holding) bool { return h.Step == act.Save.Step })
	if i < 0 || !w.belongs(&a.held[i], act.Save) || a.held[i].Writing != act.Save.Writing {
		e.Outcome = Changed
		return
	}
	key := fmt.Sprintf("data/%s/%d/%d", act.Save.View, act.Save.Save, a.cfg.Index)
	w.put(key, "")
	e.Body, _ = json.Marshal(payloadOf{a.held[i].content, key})
}

// scan takes a snapshot of the files on disk, unless they belong to another view, round or
// writing.
func (w *world) scan(a *actor, save Announcement, e *Event) {
	i := slices.IndexFunc(a.disk, func(h holding) bool { return h.Step == save.Step })
	if i < 0 {
		e.Outcome = NotExist
		return
	}
	h := a.disk[i]
	counted := a.counts.At(h.View, h.Round, h.Step)
	number := a.counts.Number(h.Local, h.print(), a.sameAsCounted(&h), 1)
	behind := counted > 0 && counted < save.Writing && a.counts.Print(h.View, h.Round, h.Step) == h.print() && save.Scope == ScopeNode
	if !w.belongs(&h, save) || w.sc.off&rule(ruleOfWritings) == 0 && (max(counted, number) > save.Writing || behind) {
		e.Outcome = Changed
		return
	}
	e.Provisional = save.Scope == ScopeNode && a.counts.Print(h.View, h.Round, h.Step) != h.print()
	if h.Writing, h.Edition = save.Writing, save.Edition; save.Scope == ScopeJob {
		a.counts, _ = a.counts.Note(h.Local, h.print())
	}
	a.keep(h)
}

// sameAsCounted reports whether files belong to the writing of their step that was counted last.
func (a *actor) sameAsCounted(h *holding) bool {
	run, writing, whole := 0, 0, false
	_, _ = fmt.Sscanf(a.counts.Print(h.View, h.Round, h.Step), "%d/%d/%t", &run, &writing, &whole) // no match means no state
	return run == h.content.Run && writing == h.content.Writing
}

// belongs reports whether files belong to a save's view and round.
func (w *world) belongs(h *holding, save Announcement) bool {
	return h.Round == save.Round && (h.View == save.View || w.sc.off&rule(2) != 0)
}

// keep stores a state of a step and replaces an earlier one.
func (a *actor) keep(h holding) {
	a.held = append(slices.DeleteFunc(a.held, func(o holding) bool { return o.Step == h.Step }), h)
}

type modelCommit struct {
	Header
	Step  int64
	Group Joined `json:"group"`
	Parts []Part
}

var commitHeader = Header{APIVersion: apiVersion, Kind: kindCommit}

func readModelCommit(o object) (c modelCommit, ok bool) {
	if !strings.HasSuffix(o.key, commitName) {
		return c, false
	}
	return c, json.Unmarshal([]byte(o.body), &c) == nil
}

func (w *world) write(act Action, e *Event) {
	body := string(act.Body)
	if act.Do == Commit {
		text, _ := json.Marshal(modelCommit{commitHeader, act.Save.Step, act.Joined, act.Parts})
		body = string(text)
	}
	there, ok := w.get(act.Key)
	switch {
	case (act.Do == Create || act.Do == Commit && act.Version == "") && ok:
		e.Outcome = Exists
		return
	case act.Do == Create || act.Do == Commit && act.Version == "":
	case act.Version == anyVersion:
	case !ok || there != act.Version:
		e.Outcome = Changed
		return
	}
	if strings.HasPrefix(act.Key, ViewsPrefix) && !w.sc.faults() {
		w.checkOrder(act)
	}
	if act.Do == Commit {
		w.checkCommit(act)
		id := SaveID{act.Save.View, act.Save.Save}
		if !slices.Contains(w.done, id) {
			w.done = append(w.done, id)
			slices.SortFunc(w.done, func(a, b SaveID) int {
				return cmp.Or(cmp.Compare(a.View, b.View), cmp.Compare(a.Number, b.Number))
			})
		}
	}
	w.put(act.Key, body)
	e.Version = body
}

func (w *world) dataThere(raw json.RawMessage) bool {
	if raw == nil {
		return true
	}
	var p payloadOf
	_ = json.Unmarshal(raw, &p)
	_, ok := w.get(p.Data)
	return ok
}

func (w *world) violated(format string, args ...any) {
	if w.bad == "" {
		w.bad = fmt.Sprintf(format, args...)
	}
}

// failed reports whether a node has ended a save by a failed part. It does so when the trainer
// wrote the step again meanwhile.
func (w *world) failed(id SaveID) bool {
	return slices.ContainsFunc(w.store, func(o object) bool {
		p, err := DecodePart([]byte(o.body))
		return err == nil && p.View == id.View && p.Save == id.Number && p.Failed != ""
	})
}

// rewrites reports whether the trainer writes a step more than once.
func (sc *scenario) rewrites() bool {
	for i, step := range sc.saves {
		if slices.Contains(sc.saves[:i], step) {
			return true
		}
	}
	return false
}

// checkOrder checks that, without faults, the previous save is committed, unless a node ended it
// because the trainer wrote the step again.
func (w *world) checkOrder(act Action) {
	a, err := DecodeAnnouncement(act.Body)
	if err == nil && a.Save > 1 && !slices.Contains(w.done, SaveID{a.View, a.Save - 1}) && !(w.sc.rewrites() && w.failed(SaveID{a.View, a.Save - 1})) {
		w.violated("node %d announces save %d, and save %d is not committed", a.By, a.Save, a.Save-1)
	}
}

// checkCommit checks that there are n final parts of one save, all of one writing of the trainer.
func (w *world) checkCommit(act Action) {
	if len(act.Parts) != act.Joined.Count || len(act.Joined.Parts) != act.Joined.Count {
		w.violated("COMMIT of %d parts for %d nodes", len(act.Parts), act.Joined.Count)
	}
	var first *content
	for i, p := range act.Parts {
		if act.Joined.Parts[i] == "" || p.View != act.Save.View || p.Save != act.Save.Save || p.Index != i {
			w.violated("COMMIT without the part of node %d", i)
			return
		}
		if p.Payload == nil {
			if (w.sc.mode != "rank0" || i == 0) && !act.Joined.Provisional {
				w.violated("COMMIT without the files of node %d, which has some", i)
			}
			continue
		}
		var c payloadOf
		if err := json.Unmarshal(p.Payload, &c); err != nil {
			w.violated("payload %q: %v", p.Payload, err)
		}
		if first == nil {
			first = &c.content
		}
		if c.Run != first.Run || c.Writing != first.Writing || c.Step != first.Step {
			w.violated("COMMIT mixes run %d, writing %d with run %d, writing %d", first.Run, first.Writing, c.Run, c.Writing)
		}
		if !c.Whole && !act.Joined.Provisional {
			w.violated("COMMIT of half of the files of node %d", i)
		}
	}
	if first != nil {
		w.checkNewest(act, *first)
	}
}

// told checks a report against the properties.
func (w *world) reported(a *actor, r Report) {
	switch r.Topic {
	case Committed:
		o, _ := w.get(StepDir(r.Step, 0) + "/" + commitName)
		c, ok := readModelCommit(object{commitName, o})
		if !ok || c.Group.View != r.Save.View || c.Group.Save != r.Save.Number {
			w.violated("node %s reports save %d of step %d safe, and COMMIT does not hold it", a.name, r.Save.Number, r.Step)
			return
		}
		if r.Provisional != c.Group.Provisional {
			w.violated("node %s reports step %d with provisional %t, and COMMIT says %t", a.name, r.Step, r.Provisional, c.Group.Provisional)
		}
		for _, p := range c.Parts {
			if !w.dataThere(p.Payload) {
				w.violated("node %s reports step %d safe, and data of node %d is missing", a.name, r.Step, p.Index)
			}
		}
	case Registered:
		for _, b := range w.actors {
			if b != a && !b.dead && b.cfg.Job != a.cfg.Job && b.cfg.Index == a.cfg.Index && b.m.member.phase == memberBeating {
				w.violated("node %s of %s registers while node %s of %s is alive", a.name, a.cfg.Job, b.name, b.cfg.Job)
			}
		}
	}
}

package checkpoint

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// A step of several nodes is complete when every node has created its final part of the same
// save. Package group decides what a node does, and a member executes it. One goroutine feeds
// events to the state machine. Each request runs in its own goroutine and posts its result as an
// event.

// member is this node of a job whose nodes save together.
type member struct {
	u       *Uploader
	machine *group.Machine // used by loop alone
	count   int

	ctx    context.Context // until close; requests use it
	cancel context.CancelFunc
	wake   chan struct{}
	ended  chan struct{}
	work   sync.WaitGroup

	mu        sync.Mutex // leaf: held with or without Uploader.mu; guards all below
	queue     []queued
	timers    map[group.Task]*memberTimer
	home      home                       // on the volume
	announced []group.Announcement       // of the current view
	open      []group.Announcement       // neither committed nor abandoned
	brought   map[group.Local]string     // fingerprints of what this node uploaded, by writing
	scans     map[int64]*scan            // by step
	began     map[group.SaveID]time.Time // when saves were announced
	counted   map[int64][]local          // files of the writings that were counted last, by step
	viewed    bool                       // this process has adopted a view
	logged    map[string]bool            // keys of unreadable records that were logged
	last      *earlier                   // the last COMMIT.json that was read or written, with this node's files
	requested bool                       // LATEST was read
	records   map[string]group.Record
	// viewRecord is the last one that was read.
	viewRecord group.Record
	rounds     rounds
	missing    missing
	trouble    string // why records cannot be read or written
	state      memberState
	left       bool // the record says that this member has left
	refused    *RefusedError
	changed    chan struct{} // closed and replaced when any of this changes
}

// memberState is the state of this member within the job.
type memberState uint8

const (
	memberStarting   memberState = iota
	memberWatching               // waits to find out whether another job is alive
	memberRegistered             // takes part
	memberFenced                 // replaced by a newer pod; open saves are finished
	memberRefused                // another job uses the destination
)

// queued is an event, with the timer that caused it.
type queued struct {
	event group.Event
	timer *memberTimer // for a Fired event
}

type memberTimer struct{ *time.Timer }

// missing is what this member waits for from other nodes.
type missing struct {
	step  int64 // -1: waits for a view
	nodes []int
	since time.Time
	other string // a node with a different number of nodes
}

// newMember returns the member of an Uploader. It does nothing before start.
func newMember(u *Uploader) (*member, error) {
	m := &member{
		logged: make(map[string]bool),
		u:      u, count: u.cfg.Nodes, wake: make(chan struct{}, 1), ended: make(chan struct{}), timers: make(map[group.Task]*memberTimer),
		brought: make(map[group.Local]string), scans: make(map[int64]*scan), counted: make(map[int64][]local),
		began:   make(map[group.SaveID]time.Time),
		records: make(map[string]group.Record), changed: make(chan struct{}),
	}
	if err := m.readHome(); err != nil {
		return nil, err
	}
	m.rounds = rounds{m: m, seen: make(map[int64]*roundSeen)}
	for _, e := range u.early {
		m.rounds.recall(e.snap, slices.Collect(maps.Values(e.linked)))
	}
	for _, snap := range u.snaps {
		m.rounds.recall(snap, snap.Files)
	}
	machine, err := group.New(group.Config{
		Job: u.cfg.Job, Index: u.cfg.Node, Count: u.cfg.Nodes, Boot: m.home.Boot, Pod: u.cfg.Pod,
		Conflict: groupConflict(u.cfg.Conflict), QuietPeriod: min(u.cfg.QuietPeriod, DefaultQuietPeriod),
	})
	if err != nil {
		return nil, fmt.Errorf("node %d of %d: %w", u.cfg.Node, u.cfg.Nodes, err)
	}
	m.machine = machine
	m.warnOfStore()
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m, nil
}

// start starts the member, once the Uploader refers to it.
func (m *member) start() {
	go m.loop()
	m.post(group.Event{What: group.Start})
}

func groupConflict(mode string) group.Conflict {
	switch mode {
	case ConflictOverwrite:
		return group.ConflictOverwrite
	case ConflictSuffix:
		return group.ConflictSuffix
	}
	return group.ConflictFail
}

// post queues an event. It never blocks.
func (m *member) post(e group.Event) { m.enqueue(queued{event: e}) }

func (m *member) enqueue(q queued) {
	m.mu.Lock()
	m.queue = append(m.queue, q)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// loop feeds events to the state machine until close.
func (m *member) loop() {
	defer close(m.ended)
	for {
		select {
		case <-m.ctx.Done():
			m.stopTimers()
			return
		case <-m.wake:
		}
		for {
			q, ok := m.dequeue()
			if !ok {
				break
			}
			for _, a := range m.machine.Step(q.event) {
				m.act(a)
			}
			m.follow()
		}
	}
}

// dequeue returns the next event. It drops events of timers that were replaced.
func (m *member) dequeue() (queued, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.queue) > 0 {
		q := m.queue[0]
		m.queue = m.queue[1:]
		if q.timer == nil {
			return q, true
		}
		if m.timers[q.event.For] == q.timer {
			delete(m.timers, q.event.For)
			return q, true
		}
	}
	return queued{}, false
}

// act starts an action.
func (m *member) act(a group.Action) {
	if a.Do == group.Tell {
		m.report(a.Report)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.timers[a.For]; t != nil {
		t.Stop()
		delete(m.timers, a.For)
	}
	if a.Do == group.Wait {
		t := &memberTimer{}
		m.timers[a.For] = t
		t.Timer = time.AfterFunc(a.After, func() {
			m.enqueue(queued{group.Event{What: group.Fired, For: a.For}, t})
		})
		return
	}
	m.work.Go(func() {
		e := m.exec(m.ctx, a)
		e.What, e.For = group.Answer, a.For
		m.post(e)
	})
}

func (m *member) stopTimers() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.timers {
		t.Stop()
	}
	clear(m.timers)
}

// follow copies the machine's state for other goroutines, after each event.
func (m *member) follow() {
	open, announced, left := m.machine.Open(), m.machine.Announced(), m.machine.HasLeft()
	view, ok := m.machine.Position()
	m.mu.Lock()
	m.open, m.announced, m.left = open, announced, left
	moved := ok && m.home.last() != view
	m.notifyLocked()
	m.mu.Unlock()
	if moved {
		m.moveTo(view)
	}
}

func (m *member) notifyLocked() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// busy reports whether a save is open.
func (m *member) busy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.open) > 0
}

// saves reports whether a save of a step is open.
func (m *member) saves(step int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.open, func(a group.Announcement) bool { return a.Step == step })
}

// register waits until this member is registered, or until it cannot be for now. It returns a
// *RefusedError if another job uses the destination.
func (m *member) register(ctx context.Context) error {
	timeout := time.NewTimer(checkTimeout)
	defer timeout.Stop()
	for {
		m.mu.Lock()
		state, refused, changed := m.state, m.refused, m.changed
		m.mu.Unlock()
		late := timeout.C
		switch state {
		case memberRefused:
			return refused
		case memberRegistered, memberFenced:
			return nil
		case memberWatching: // this state ends by itself
			late = nil
		}
		select {
		case <-changed:
		case <-late:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// leaveTimeout limits how long close waits for the record that this member has left.
const leaveTimeout = 3 * time.Second

// close records that this member has left, and stops it.
func (m *member) close() {
	m.mu.Lock()
	alive := m.state == memberRegistered
	m.mu.Unlock()
	if alive {
		m.leave()
	}
	m.cancel()
	<-m.ended
	m.work.Wait()
}

func (m *member) leave() {
	m.post(group.Event{What: group.Leave})
	timeout := time.NewTimer(leaveTimeout)
	defer timeout.Stop()
	for {
		m.mu.Lock()
		changed := m.changed
		left := m.left
		m.mu.Unlock()
		if left {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			return
		}
	}
}

// troubled returns why records cannot be read or written; "" if they can.
func (m *member) troubled() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.trouble
}

// waitsFor describes what this member waits for from other nodes; "" if nothing.
func (m *member) waitsFor() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.missing.nodes) == 0 {
		return ""
	}
	return m.missing.String()
}

func (w missing) String() string {
	what := fmt.Sprintf("the part of step %d of", w.step)
	if w.step < 0 {
		what = "the start of"
	}
	text := fmt.Sprintf("%s %s, since %s", what, nodeWords(w.nodes), w.since.UTC().Format(time.RFC3339))
	if w.other != "" {
		text += "; there is " + w.other
	}
	return text
}

// nodeWords names nodes by their indices.
func nodeWords(nodes []int) string {
	if len(nodes) == 1 {
		return fmt.Sprint("node ", nodes[0])
	}
	text := "nodes"
	for i, n := range nodes {
		if i == 8 {
			return fmt.Sprintf("%s and %d more", text, len(nodes)-i)
		}
		text += fmt.Sprint(" ", n)
	}
	return text
}

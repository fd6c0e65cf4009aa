package window

import (
	"container/heap"
	"fmt"
	"slices"
	"time"
)

// A window may be broadcast: each of Config.Groups groups of readers gets every shard.
// Then the entry of a shard that some group has, or has had, is Leased by nobody in
// particular; each group has a share of it, with leases of its own. The entry is
// acknowledged when all groups have acknowledged their shares, and not before, so its
// file stays for the slowest group, and a fast one runs ahead as far as the window's
// size allows.
//
// Verbs on files know no groups: what is done to a file is done for all of them.

// share is what one group has of a shard.
type share struct {
	acked    bool
	lease    *lease // nil while nobody of the group has it
	attempts int
}

// shareKey names a share in the journal.
type shareKey struct {
	seq
	group int
}

// GroupError says that a lease was asked for by a group that the window does not have.
type GroupError struct {
	Input  string
	Group  *int // nil: none was told
	Groups int
}

func (e *GroupError) Error() string {
	switch {
	case e.Groups < 2:
		return fmt.Sprintf("group=%d: input %s is not broadcast to groups, its readers share it; leave the group out", *e.Group, e.Input)
	case e.Group == nil:
		return fmt.Sprintf("input %s is broadcast to %d groups: say which one asks, group=0 to group=%d", e.Input, e.Groups, e.Groups-1)
	}
	return fmt.Sprintf("group=%d: input %s is broadcast to %d groups, from 0 to %d", *e.Group, e.Input, e.Groups, e.Groups-1)
}

func (w *Window) broadcast() bool { return w.cfg.Groups > 1 }

// groupOf is the group that asks.
func (w *Window) groupOf(r LeaseRequest) (int, error) {
	bad := r.Group != nil && (*r.Group < 0 || *r.Group >= max(1, w.cfg.Groups))
	if bad || w.broadcast() && r.Group == nil {
		return 0, &GroupError{w.cfg.Input, r.Group, w.cfg.Groups}
	}
	if r.Group == nil {
		return 0, nil
	}
	return *r.Group, nil
}

// nextLeaseLocked is the lowest shard that a group can have now.
func (w *Window) nextLeaseLocked(now time.Time, group int) *entry {
	if !w.broadcast() {
		return w.popLocked(now)
	}
	w.came[group] = true
	for {
		e, first := w.waitingShareLocked(group), w.firstOfferedLocked()
		// What was put back into ready/ may come before what is shared already.
		if first != nil && (e == nil || first.before(e.seq)) {
			if first = w.popLocked(now); first != nil {
				w.shareLocked(first)
				continue
			}
		}
		if e == nil || !w.cfg.AnyOrder && !w.dueLocked(e) {
			return nil
		}
		if st, err := w.stage.ready.Stat(e.name); err == nil && st.Ino == e.ino {
			return e
		}
		if w.findLocked(now, e, nil); e.shares != nil {
			return nil // a reader was faster, by a verb on the file; the next scan tells what it did
		}
	}
}

// waitingShareLocked is the lowest that groups have shares of and this one is to get.
func (w *Window) waitingShareLocked(group int) *entry {
	for _, e := range w.shared {
		if s := e.shares[group]; !s.acked && s.lease == nil {
			return e
		}
	}
	return nil
}

// firstOfferedLocked is the lowest Ready one that may be leased, if its turn has come.
func (w *Window) firstOfferedLocked() *entry {
	for len(w.offered) > 0 && w.offered[0].state != Ready {
		heap.Pop(&w.offered)
	}
	if len(w.offered) == 0 {
		return nil
	}
	return w.offered[0]
}

// shareLocked makes a Ready file one that groups have shares of.
func (w *Window) shareLocked(e *entry) {
	e.shares = make([]share, w.cfg.Groups)
	for group := range e.shares {
		e.shares[group].acked = w.parts[shareKey{e.seq, group}]
	}
	at, _ := slices.BinarySearchFunc(w.shared, e, func(a, b *entry) int { return a.compare(b.seq) })
	w.shared = slices.Insert(w.shared, at, e)
	w.all.held++
	e.lease = &lease{id: "all", reader: &w.all, e: e, since: time.Now()}
	w.moveLocked(e, Leased, "broadcast")
}

// takeShareLocked gives a group's share to a reader.
func (w *Window) takeShareLocked(e *entry, l *lease) {
	s := &e.shares[l.group]
	s.lease = l
	s.attempts++
	h := w.history[e.seq]
	h.attempts = max(h.attempts, s.attempts)
	w.history[e.seq] = h
	w.givenLocked(l, s.attempts)
}

// endShareLocked ends a reader's lease of its group's share.
func (w *Window) endShareLocked(l *lease) {
	delete(w.leases, l.id)
	l.reader.held--
	l.e.shares[l.group].lease = nil
}

// endSharesLocked ends all that groups have of a file.
func (w *Window) endSharesLocked(e *entry) {
	for _, s := range e.shares {
		if s.lease != nil {
			w.endShareLocked(s.lease)
		}
	}
	e.shares = nil
	w.shared = slices.DeleteFunc(w.shared, func(other *entry) bool { return other == e })
}

// ackShareLocked takes a group's acknowledgement, and with the last one the shard's.
func (w *Window) ackShareLocked(l *lease) error {
	e := l.e
	last := !slices.ContainsFunc(e.shares, func(s share) bool { return !s.acked && s.lease != l })
	if last {
		w.reportLocked(e, Delivery{Reader: l.reader.name, Leased: l.since.UTC()})
	}
	if err := w.journal.add("part", e.seq, l.group, l.id); err != nil {
		return fmt.Errorf("acknowledge %s: %w; try again", e.name, err)
	}
	w.acked.add(l.id)
	l.reader.seen = time.Now()
	w.endShareLocked(l)
	e.shares[l.group].acked = true
	w.parts[shareKey{e.seq, l.group}] = true
	if last {
		if err := w.journal.add("ack", e.seq, ""); err != nil {
			w.troubleLocked("write the journal", err) // the parts tell
		}
		w.ackLocked(e, "acknowledged by all groups")
	}
	return nil
}

// wholeLocked tells whether all groups have acknowledged a position.
func (w *Window) wholeLocked(a seq) bool {
	for group := range w.cfg.Groups {
		if !w.parts[shareKey{a, group}] {
			return false
		}
	}
	return w.broadcast()
}

// resumeSharesLocked gives readers the shares that they had before a restart.
func (w *Window) resumeSharesLocked(now time.Time, e *entry, m memory) {
	for group := range w.cfg.Groups {
		given, had := m.shares[shareKey{e.seq, group}]
		if !had || w.parts[shareKey{e.seq, group}] {
			continue
		}
		if e.shares == nil {
			w.shareLocked(e)
		}
		l := &lease{id: given.id, reader: w.readerLocked(now, given.reader), e: e, group: group, found: true, since: now}
		w.leases[l.id] = l
		w.deadlineLocked(l, now.Add(w.cfg.Reattach))
		l.reader.held++
		w.countFoundLocked()
		e.shares[group].lease = l
		e.shares[group].attempts = 1
	}
}

// silentGroups names those that have not asked for anything since the start.
func (w *Window) silentGroups() (words string) {
	for group, came := range w.came {
		if !came {
			words += fmt.Sprintf("; group %d has not asked for a shard yet", group)
		}
	}
	return words
}

package window

import (
	"fmt"
	"slices"
	"time"
)

// A window may be broadcast: each of Config.Groups groups of readers receives every shard. The
// entry of a shard that any group holds or held is then Leased by a pseudo-reader. Each group has a
// share of the entry, with leases of its own. The entry is acknowledged once all groups have
// acknowledged their shares. So its file stays until the slowest group is done, and a fast group
// can run ahead as far as the window's size allows.
//
// The file protocol does not know groups: an operation on a file counts for all of them.

// share is the state of one group for a shard.
type share struct {
	acked    bool
	lease    *lease // nil while no reader of the group holds it
	attempts int
}

// shareKey identifies a share in the journal.
type shareKey struct {
	seq
	group int
}

// GroupError is returned for a lease request with a missing or unknown group.
type GroupError struct {
	Input  string
	Group  *int // nil: the request had none
	Groups int
}

func (e *GroupError) Error() string {
	switch {
	case e.Groups < 2:
		return fmt.Sprintf("group=%d: input %s is not broadcast to groups, its readers share it; omit the group", *e.Group, e.Input)
	case e.Group == nil:
		return fmt.Sprintf("input %s is broadcast to %d groups: set group, from group=0 to group=%d", e.Input, e.Groups, e.Groups-1)
	}
	return fmt.Sprintf("group=%d: input %s is broadcast to %d groups, from 0 to %d", *e.Group, e.Input, e.Groups, e.Groups-1)
}

func (w *Window) broadcast() bool { return w.cfg.Groups > 1 }

// groupOf returns the group of a request, or a *GroupError.
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

// nextLeaseLocked returns the lowest shard that a group can lease now, or nil.
func (w *Window) nextLeaseLocked(now time.Time, group int) *entry {
	if !w.broadcast() {
		return w.popLocked(now)
	}
	w.came[group] = true
	for {
		e, first := w.waitingShareLocked(group), w.offers.first()
		// A shard that was put back into ready/ may precede all shared ones.
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
			return nil // a reader was faster, through the file protocol; the next scan finds out
		}
	}
}

// waitingShareLocked returns the lowest shared entry that this group still has to receive, or nil.
func (w *Window) waitingShareLocked(group int) *entry {
	for _, e := range w.shared {
		if s := e.shares[group]; !s.acked && s.lease == nil {
			return e
		}
	}
	return nil
}

// shareLocked creates the groups' shares of a Ready file.
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

// takeShareLocked leases a group's share to a reader.
func (w *Window) takeShareLocked(e *entry, l *lease) {
	s := &e.shares[l.group]
	s.lease = l
	s.attempts++
	w.deliveries.attempted(e.seq, s.attempts)
	w.givenLocked(l, s.attempts)
}

// endShareLocked ends a reader's lease on its group's share.
func (w *Window) endShareLocked(l *lease) {
	delete(w.leases, l.id)
	l.reader.held--
	l.e.shares[l.group].lease = nil
}

// endSharesLocked removes all shares of a file.
func (w *Window) endSharesLocked(e *entry) {
	for _, s := range e.shares {
		if s.lease != nil {
			w.endShareLocked(s.lease)
		}
	}
	e.shares = nil
	w.shared = slices.DeleteFunc(w.shared, func(other *entry) bool { return other == e })
}

// ackShareLocked acknowledges a group's share. The last share acknowledges the shard.
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
			w.troubleLocked("cannot write the journal", err) // the part records are enough
		}
		w.ackLocked(e, "acknowledged by all groups")
	}
	return nil
}

// wholeLocked reports whether all groups have acknowledged a position.
func (w *Window) wholeLocked(a seq) bool {
	for group := range w.cfg.Groups {
		if !w.parts[shareKey{a, group}] {
			return false
		}
	}
	return w.broadcast()
}

// resumeSharesLocked restores the shares that readers held before a restart.
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
		w.deliveries.found()
		e.shares[group].lease = l
		e.shares[group].attempts = 1
	}
}

// silentGroups returns a text that names the groups that have requested nothing since the start.
func (w *Window) silentGroups() (words string) {
	for group, came := range w.came {
		if !came {
			words += fmt.Sprintf("; group %d has not requested a shard yet", group)
		}
	}
	return words
}

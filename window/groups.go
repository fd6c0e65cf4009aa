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

// groupOf returns the group of a request, or a *GroupError.
func (w *Window) groupOf(r LeaseRequest) (int, error) {
	bad := r.Group != nil && (*r.Group < 0 || *r.Group >= max(1, w.cfg.Groups))
	if bad || w.shares.broadcast() && r.Group == nil {
		return 0, &GroupError{w.cfg.Input, r.Group, w.cfg.Groups}
	}
	if r.Group == nil {
		return 0, nil
	}
	return *r.Group, nil
}

// nextLeaseLocked returns the lowest shard that a group can lease now, or nil.
func (w *Window) nextLeaseLocked(now time.Time, group int) *entry {
	if !w.shares.broadcast() {
		return w.popLocked(now)
	}
	w.shares.came[group] = true
	for {
		e, first := w.shares.first(group), w.offers.first()
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
		if w.findLocked(now, e, nil); e.shares() != nil {
			return nil // a reader was faster, through the file protocol; the next scan finds out
		}
	}
}

// shareLocked shares a Ready file among the groups.
func (w *Window) shareLocked(e *entry) {
	w.shares.add(time.Now(), e)
	w.moveLocked(e, Leased, "broadcast")
}

// takeShareLocked leases a group's share to a reader.
func (w *Window) takeShareLocked(e *entry, l *lease) {
	s := &e.shares()[l.group]
	s.lease = l
	s.attempts++
	w.deliveries.attempted(e.seq, s.attempts)
	w.givenLocked(l, s.attempts)
}

// endShareLocked ends a reader's lease on its group's share.
func (w *Window) endShareLocked(l *lease) {
	w.leases.end(l)
	l.reader.held--
	l.e.shares()[l.group].lease = nil
}

// endSharesLocked ends all leases on shares of a file; the caller ends that of all groups.
func (w *Window) endSharesLocked(e *entry) {
	for _, s := range e.shares() {
		if s.lease != nil {
			w.endShareLocked(s.lease)
		}
	}
	w.shares.remove(e)
}

// ackShareLocked acknowledges a group's share. The last share acknowledges the shard.
func (w *Window) ackShareLocked(l *lease) error {
	e := l.e
	last := !slices.ContainsFunc(e.shares(), func(s share) bool { return !s.acked && s.lease != l })
	if last {
		w.reportLocked(e, Delivery{Reader: l.reader.name, Leased: l.since.UTC()})
	}
	if err := w.journal.add("part", e.seq, l.group, l.id); err != nil {
		return fmt.Errorf("acknowledge %s: %w; try again", e.name, err)
	}
	w.leases.acked.add(l.id)
	l.reader.seen = time.Now()
	w.endShareLocked(l)
	w.shares.ack(e, l.group)
	if last {
		if err := w.journal.add("ack", e.seq, ""); err != nil {
			w.troubleLocked("cannot write the journal", err) // the part records are enough
		}
		w.ackLocked(e, "acknowledged by all groups")
	}
	return nil
}

// resumeShares restores the shares that readers held before a restart.
func (r *recovery) resumeShares(e *entry) {
	for group := range r.cfg.Groups {
		given, had := r.memory.shares[shareKey{e.seq, group}]
		if !had || r.shares.parts[shareKey{e.seq, group}] {
			continue
		}
		if e.shares() == nil {
			r.shareLocked(e)
		}
		l := &lease{id: given.id, reader: r.readerLocked(r.now, given.reader), e: e, group: group, found: true, since: r.now}
		r.leases.resume(l)
		r.deadlineLocked(l, r.now.Add(r.cfg.Reattach))
		l.reader.held++
		r.deliveries.found()
		e.shares()[group].lease = l
		e.shares()[group].attempts = 1
	}
}

package window

import (
	"fmt"
	"slices"
	"time"
)

// shares is the state of the groups of a window that is broadcast; it is empty otherwise. shared
// holds the entries whose file at least one group has or had, and whose file is not acknowledged by
// all. parts are the acknowledgements of single groups, until their position is finished. The
// window's mutex guards it.
type shares struct {
	groups int      // the number of groups; 0 unless broadcast
	all    reader   // pseudo-reader that holds the shared entries
	shared []*entry // Leased, ascending
	parts  map[shareKey]bool
	came   []bool // by group: it has requested a shard
}

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

func newShares(groups int) shares {
	s := shares{all: reader{name: "(all groups)"}, parts: map[shareKey]bool{}}
	if groups > 1 {
		s.groups, s.came = groups, make([]bool, groups)
	}
	return s
}

// broadcast reports whether each group receives every shard.
func (s *shares) broadcast() bool { return s.groups > 0 }

// add creates the groups' shares of a Ready entry, and a lease of all groups together.
func (s *shares) add(now time.Time, e *entry) {
	shares := make([]share, s.groups)
	for group := range shares {
		shares[group].acked = s.parts[shareKey{e.seq, group}]
	}
	at, _ := slices.BinarySearchFunc(s.shared, e, func(a, b *entry) int { return a.compare(b.seq) })
	s.shared = slices.Insert(s.shared, at, e)
	s.all.held++
	e.lease = &lease{id: "all", reader: &s.all, e: e, shares: shares, since: now}
}

// remove removes an entry. All leases on its shares have ended, and its own ends now.
func (s *shares) remove(e *entry) {
	s.shared = slices.DeleteFunc(s.shared, func(other *entry) bool { return other == e })
}

// first returns the lowest shared entry that a group still has to receive, or nil.
func (s *shares) first(group int) *entry {
	for _, e := range s.shared {
		if of := e.shares()[group]; !of.acked && of.lease == nil {
			return e
		}
	}
	return nil
}

// ack records that a group has acknowledged its share.
func (s *shares) ack(e *entry, group int) {
	e.shares()[group].acked = true
	s.parts[shareKey{e.seq, group}] = true
}

// whole reports whether all groups have acknowledged a position.
func (s *shares) whole(a seq) bool {
	for group := range s.groups {
		if !s.parts[shareKey{a, group}] {
			return false
		}
	}
	return s.broadcast()
}

// forget forgets the acknowledgements of a finished position.
func (s *shares) forget(a seq) {
	for group := range s.groups {
		delete(s.parts, shareKey{a, group})
	}
}

// silent returns a text that names the groups that have requested nothing since the start.
func (s *shares) silent() (words string) {
	for group, came := range s.came {
		if !came {
			words += fmt.Sprintf("; group %d has not requested a shard yet", group)
		}
	}
	return words
}

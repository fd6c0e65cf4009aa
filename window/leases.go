package window

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// lease is one shard that a reader holds: by Lease, or by a claim through the file protocol.
type lease struct {
	id       string // empty for a claim
	reader   *reader
	e        *entry
	group    int       // the group whose share it is, if broadcast
	shares   []share   // by group, if it is the one of all groups
	since    time.Time // time of delivery
	bound    bool
	found    bool      // recovered after a restart and not used since
	deadline time.Time // zero: does not expire
}

func (l *lease) claim() bool { return l.id == "" }

// leases holds the leases that have an id, which claims do not have, and remembers the last
// acknowledged ones. No lease expires before next; zero: none does. The window's mutex guards it.
type leases struct {
	nonce  string // random prefix of the ids of this process
	issued int
	byID   map[string]*lease
	next   time.Time
	acked  recent
}

func newLeases(nonce string) leases {
	return leases{nonce: nonce, byID: map[string]*lease{}, acked: recent{ring: make([]string, 1024), set: map[string]struct{}{}}}
}

// issue adds a lease with a new id.
func (s *leases) issue(l *lease) {
	s.issued++
	l.id = fmt.Sprintf("%s-%d", s.nonce, s.issued)
	s.byID[l.id] = l
}

// resume adds a lease of an earlier process.
func (s *leases) resume(l *lease) { s.byID[l.id] = l }

// end removes a lease.
func (s *leases) end(l *lease) { delete(s.byID, l.id) }

// expire sets when a lease expires, and reports whether that is earlier than any other.
func (s *leases) expire(l *lease, at time.Time) (first bool) {
	l.deadline = at
	if first = s.next.IsZero() || at.Before(s.next); first {
		s.next = at
	}
	return first
}

// expired returns the leases whose deadline has passed. It searches only when next has come.
func (s *leases) expired(now time.Time) (over []*lease) {
	if s.next.IsZero() || now.Before(s.next) {
		return nil
	}
	s.next = time.Time{}
	for _, l := range s.byID {
		switch {
		case l.deadline.IsZero():
		case !now.Before(l.deadline):
			over = append(over, l)
		case s.next.IsZero() || l.deadline.Before(s.next):
			s.next = l.deadline
		}
	}
	return over
}

// byReader returns the ids of the leases by reader, sorted.
func (s *leases) byReader() map[string][]string {
	of := make(map[string][]string)
	for _, id := range slices.Sorted(maps.Keys(s.byID)) {
		if l := s.byID[id]; !l.claim() {
			of[l.reader.name] = append(of[l.reader.name], id)
		}
	}
	return of
}

// recent holds the ids of the last acknowledged leases, so that a repeated Ack succeeds again.
type recent struct {
	ring []string
	at   int
	set  map[string]struct{}
}

func (r *recent) has(id string) bool { _, ok := r.set[id]; return ok }

func (r *recent) add(id string) {
	delete(r.set, r.ring[r.at])
	r.ring[r.at] = id
	r.set[id] = struct{}{}
	r.at = (r.at + 1) % len(r.ring)
}

func (r *recent) ids() (ids []string) {
	for i := range r.ring {
		if id := r.ring[(r.at+i)%len(r.ring)]; id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

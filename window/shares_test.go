package window

import (
	"testing"
	"time"
)

func TestSharesAreWholeOnceAllGroupsAcknowledged(t *testing.T) {
	s := newShares(2)
	e := entriesAt(Ready, 1, 0)
	now := time.Unix(1000, 0)
	for _, e := range e {
		s.add(now, e)
	}
	if !s.broadcast() || s.all.held != 2 || s.first(0) != e[1] || s.first(1) != e[1] {
		t.Error("a group does not receive the lowest entry")
	}
	e[1].shares()[0].lease = &lease{}
	if s.first(0) != e[0] || s.first(1) != e[1] {
		t.Error("a group that holds an entry does not receive the next one")
	}
	e[1].shares()[0].lease = nil
	s.ack(e[1], 0)
	if s.first(0) != e[0] || s.whole(e[1].seq) {
		t.Error("an acknowledgement of one group does not count for it alone")
	}
	s.remove(e[1])
	s.add(now, e[1])
	if s.first(0) != e[0] {
		t.Error("an acknowledgement was forgotten with the shares")
	}
	s.ack(e[1], 1)
	if !s.whole(e[1].seq) {
		t.Error("the position is not acknowledged by all groups")
	}
	s.forget(e[1].seq)
	if len(s.parts) > 0 {
		t.Errorf("%d acknowledgements of a finished position are kept", len(s.parts))
	}
	s.came[1] = true
	if got, want := s.silent(), "; group 0 has not requested a shard yet"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSharesOfAWindowWithoutGroupsAreEmpty(t *testing.T) {
	for _, groups := range []int{0, 1} {
		if s := newShares(groups); s.broadcast() || s.whole(seq{}) || s.silent() != "" {
			t.Errorf("%d groups: the window is broadcast", groups)
		}
	}
}

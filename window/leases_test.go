package window

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestLeasesExpireOnTime(t *testing.T) {
	s := newLeases("n")
	now := time.Unix(1000, 0)
	r := &reader{name: "r"}
	var l [3]*lease
	for i := range l {
		l[i] = &lease{reader: r}
		s.issue(l[i])
	}
	if !s.expire(l[0], now.Add(2*time.Second)) || !s.expire(l[1], now.Add(time.Second)) || s.expire(l[1], now.Add(3*time.Second)) {
		t.Error("expire does not report that a deadline is the first")
	}
	if over := s.expired(now); len(over) > 0 {
		t.Errorf("%d leases expired too early", len(over))
	}
	if over := s.expired(now.Add(2 * time.Second)); !slices.Equal(over, l[:1]) || !s.next.Equal(now.Add(3*time.Second)) {
		t.Errorf("got %d expired leases and the next deadline at %v, want 1 and %v", len(over), s.next, now.Add(3*time.Second))
	}
	s.end(l[0])
	s.end(l[1])
	if over := s.expired(now.Add(time.Hour)); len(over) > 0 || !s.next.IsZero() {
		t.Errorf("got %d expired leases, want none: one ended and one has no deadline", len(over))
	}
}

func TestLeasesAreListedByReader(t *testing.T) {
	s := newLeases("n")
	a, b := &reader{name: "a"}, &reader{name: "b"}
	s.issue(&lease{reader: b})
	s.issue(&lease{reader: a})
	s.resume(&lease{id: "m-7", reader: b})
	got := s.byReader()
	if !slices.Equal(got["a"], []string{"n-2"}) || !slices.Equal(got["b"], []string{"m-7", "n-1"}) {
		t.Errorf("got %v, want n-2 of a, and m-7 and n-1 of b", got)
	}
}

func TestLeasesRememberTheLastAcknowledgedOnes(t *testing.T) {
	s := newLeases("n")
	for i := range len(s.acked.ring) + 1 {
		s.acked.add(fmt.Sprint(i))
	}
	ids := s.acked.ids()
	if s.acked.has("0") || !s.acked.has("1") || len(ids) != len(s.acked.ring) || ids[0] != "1" {
		t.Errorf("got %d ids from %s on, want the last %d", len(ids), ids[0], len(s.acked.ring))
	}
}

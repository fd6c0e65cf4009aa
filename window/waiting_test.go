package window

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func TestWaitingServesInOrder(t *testing.T) {
	s := waiting{cause: CauseBackend}
	now := time.Unix(1000, 0)
	a, b := &reader{name: "a"}, &reader{name: "b"}
	first, second, third := s.add(now, a, LeaseRequest{}), s.add(now, b, LeaseRequest{}), s.add(now, a, LeaseRequest{})
	var asked []string
	s.serve(func(rd *reader, _ LeaseRequest) (Lease, error) {
		if asked = append(asked, rd.name); rd == b {
			return Lease{}, &WaitError{CauseBackend}
		}
		return Lease{ID: rd.name}, nil
	})
	if got := (<-first.got).lease.ID + (<-third.got).lease.ID; got != "aa" || !slices.Equal(asked, []string{"a", "b", "a"}) {
		t.Errorf("got %q in the order %q, want both calls of a", got, asked)
	}
	if a.asks != 0 || b.asks != 1 || !slices.Equal(s.calls, []*waiter{second}) {
		t.Errorf("%d calls wait, %d of a and %d of b, want 1 of b", len(s.calls), a.asks, b.asks)
	}
	fourth := s.add(now, a, LeaseRequest{})
	s.remove(second)
	s.remove(first)
	if a.asks != 1 || b.asks != 0 || !slices.Equal(s.calls, []*waiter{fourth}) {
		t.Errorf("%d calls wait, %d of a and %d of b, want 1 of a", len(s.calls), a.asks, b.asks)
	}
	s.end(ErrClosed)
	if o := <-fourth.got; !errors.Is(o.err, ErrClosed) || len(s.calls) > 0 {
		t.Errorf("got %v at the end, want %v", o.err, ErrClosed)
	}
}

func TestWaitingAccountsForReadersThatHoldNothing(t *testing.T) {
	now := time.Unix(1000, 0)
	s := waiting{cause: CauseNetwork, starving: newStarving(now), meters: NewMetrics(nil).of("train", 1)}
	idle, busy := &reader{waits: map[Cause]time.Duration{}}, &reader{held: 1, waits: map[Cause]time.Duration{}}
	s.add(now, busy, LeaseRequest{})
	if s.starved() {
		t.Error("a reader that holds a shard is starved")
	}
	s.add(now, idle, LeaseRequest{})
	if !s.starved() {
		t.Error("a reader that holds nothing is not starved")
	}
	s.account(now.Add(3 * time.Second))
	s.cause = CauseReaders
	s.account(now.Add(5 * time.Second))
	if s.starved() {
		t.Error("a reader that waits for other readers is starved")
	}
	if idle.waits[CauseNetwork] != 3*time.Second || idle.waits[CauseReaders] != 2*time.Second || len(busy.waits) > 0 {
		t.Errorf("got waits of %v and %v, want 3s for the network, 2s for readers, and none", idle.waits, busy.waits)
	}
	if got := s.starving.now.waits[CauseNetwork]; got != 3*time.Second {
		t.Errorf("got a sum of %v for the network, want 3s", got)
	}
}

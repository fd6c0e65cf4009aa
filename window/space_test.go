package window

import "testing"

func TestSpaceSumsUpItsStates(t *testing.T) {
	s := newSpace(NewMetrics(nil).of("train", 100))
	e := &entry{size: 30, beside: 5, state: Planned}
	step := func(to State) { s.move(e, to); e.state = to }
	check := func(used, peak, unallocated int64) {
		t.Helper()
		var sum int64
		for _, of := range s.totals {
			sum += of.bytes
		}
		if s.used != used || sum != used || s.peak != peak || s.unallocated != unallocated {
			t.Errorf("%s: got %d used, %d in the states, %d at most, %d unallocated, want %d, %d, %d, %d",
				e.state, s.used, sum, s.peak, s.unallocated, used, used, peak, unallocated)
		}
	}
	step(Reserved)
	s.reserve(e)
	check(35, 35, 35)
	step(Fetching)
	s.allocate(e, true)
	s.allocate(e, true)
	check(35, 35, 0)
	s.allocate(e, false)
	check(35, 35, 35)
	s.allocate(e, true)
	s.resize(e, 10, 2)
	check(12, 35, 0)
	step(Ready)
	if got := s.of(Ready); got != (total{1, 12}) {
		t.Errorf("got %+v Ready, want one of 12 bytes", got)
	}
	s.measured(40, 50)
	check(12, 52, 0)
	step(Acked)
	step(Freed)
	check(0, 52, 0)
}

func TestSpaceOfADiscardedFetchIsFree(t *testing.T) {
	s := newSpace(NewMetrics(nil).of("train", 100))
	e := &entry{size: 30, state: Planned}
	s.move(e, Reserved)
	e.state = Reserved
	s.reserve(e)
	s.discard(e)
	if s.used != 0 || s.unallocated != 0 || s.of(Reserved) != (total{items: 1}) {
		t.Errorf("got %d used and %d unallocated, want 0 and 0", s.used, s.unallocated)
	}
}

package window

import (
	"slices"
	"testing"
)

func TestReusePlanKeepsWhatFits(t *testing.T) {
	rooms := []int64{10, 20, 30}
	d := newDemand(Indexes{2, others, 0, 2}, rooms, 40)
	if !slices.Equal(d.at, []int32{2, nowhere, 0}) || d.need != 40 || !d.fits {
		t.Errorf("got %+v, want items 2 and 0 at their first positions, which fit", d)
	}
	large := newDemand(Indexes{0, 1, 2}, rooms, 59)
	if large.need != 60 || large.fits {
		t.Errorf("got %+v, want 60 bytes that do not fit", large)
	}
	for _, mode := range []Reuse{ReuseFit, ReusePin} {
		p := reusePlan{mode: mode, demand: map[int]demand{}}
		p.store(1, large)
		if a, wanted := p.wanted(1, 1); wanted != (mode == ReusePin) || wanted && a != (seq{1, 1}) {
			t.Errorf("%s: got %v (wanted: %t)", mode, a, wanted)
		}
	}
}

func TestReusePlanAwaitsTheCurrentEpoch(t *testing.T) {
	p := reusePlan{mode: ReuseFit, demand: map[int]demand{}}
	rooms := []int64{10, 20, 30}
	p.undecided = entriesAt(Acked, 0)
	if p.decided(1) {
		t.Error("the next epoch is decided before its order is known")
	}
	if got := p.store(0, newDemand(Indexes{0, 1}, rooms, 100)); len(got) != 1 {
		t.Errorf("got %d undecided entries, want 1", len(got))
	}
	if got := p.store(1, newDemand(Indexes{1, 2, 1}, rooms, 100)); len(got) != 0 || !p.decided(1) {
		t.Errorf("got %d undecided entries, want each once", len(got))
	}
	for _, c := range []struct {
		a    seq
		item int
		want seq
		ok   bool
	}{
		{seq{1, 0}, 1, seq{0, 1}, true}, // epoch 0 acknowledges it at position 1
		{seq{1, 1}, 2, seq{}, false},    // epoch 0 does not contain it
		{seq{1, 2}, 1, seq{}, false},    // only its first position reuses the file
		{seq{0, 1}, 1, seq{}, false},    // the current epoch waits for nothing
	} {
		if got, ok := p.awaited(0, c.a, c.item); got != c.want || ok != c.ok {
			t.Errorf("%v: got %v (%t), want %v (%t)", c.a, got, ok, c.want, c.ok)
		}
	}
	p.forget(0)
	if _, ok := p.awaited(1, seq{1, 0}, 1); ok {
		t.Error("a position waits for an epoch that has ended")
	}
}

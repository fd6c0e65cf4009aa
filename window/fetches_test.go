package window

import (
	"slices"
	"testing"
	"time"
)

// entriesAt returns entries of epoch 0, one for each position.
func entriesAt(state State, positions ...int) (all []*entry) {
	for _, pos := range positions {
		all = append(all, &entry{seq: seq{0, pos}, state: state, size: 10, fetching: &fetching{}})
	}
	return all
}

func TestFetchesStartInOrder(t *testing.T) {
	f := fetches{running: map[*entry]bool{}}
	now := time.Unix(1000, 0)
	first, alarm := alarms()
	e := entriesAt(Reserved, 0, 1, 2, 3)
	for _, i := range []int{2, 0, 3, 1} {
		f.add(e[i])
	}
	if !f.waitsFor(0) || f.waitsFor(1) || f.count() != 4 {
		t.Errorf("%d entries, want 4 of epoch 0", f.count())
	}
	if got := f.start(now, 2, alarm); !slices.Equal(got, e[:1]) || !first.Equal(now.Add(firstAlone)) {
		t.Errorf("got %d entries and an alarm at %v, want the first alone for %v", len(got), first, firstAlone)
	}
	if got := f.start(now.Add(firstAlone), 2, alarm); !slices.Equal(got, e[1:2]) {
		t.Errorf("got %d entries after the first's exclusive time, want the second", len(got))
	}
	if f.first(0) != e[0] || f.first(1) != nil || f.count() != 4 {
		t.Error("the lowest entry is not the first that is being fetched")
	}
	f.ended(e[0])
	e[2].fetching.notBefore = now.Add(time.Minute)
	if got := f.start(now, 2, alarm); !slices.Equal(got, e[3:]) {
		t.Errorf("got %d entries, want the last: the third is paused", len(got))
	}
	f.ended(e[1])
	f.ended(e[3])
	*first = time.Time{}
	if got := f.start(now, 2, alarm); len(got) > 0 || !first.Equal(e[2].fetching.notBefore) {
		t.Errorf("got %d entries and an alarm at %v, want none before the pause ends", len(got), first)
	}
}

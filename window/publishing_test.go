package window

import (
	"slices"
	"testing"
	"time"
)

func TestPublishingWaitsForTheEpoch(t *testing.T) {
	var p publishing
	now := time.Unix(1000, 0)
	first, alarm := alarms()
	e := entriesAt(Ready, 0, 1, 2)
	e[2].seq = seq{1, 0}
	p.add(e[0], false)
	p.add(e[1], false)
	p.add(e[2], true)
	e[1].state = Zombie
	if got := p.start(now, alarm); !slices.Equal(got, e[:1]) || !e[0].showing || p.count() != 1 {
		t.Errorf("got %d entries, want the first: the second was dropped, the third is of the next epoch", len(got))
	}
	p.ended(e[0])
	p.retry(now, e[0])
	if got := p.start(now, alarm); len(got) > 0 || e[0].showing || p.count() != 1 || !first.Equal(now.Add(lookEvery)) {
		t.Errorf("got %d entries and an alarm at %v, want none before %v", len(got), first, now.Add(lookEvery))
	}
	p.begin(1)
	if got := p.start(now.Add(lookEvery), alarm); !slices.Equal(got, []*entry{e[0], e[2]}) {
		t.Errorf("got %d entries, want the one that failed and that of the new epoch", len(got))
	}
}

func TestPublishingLeavesTimeForFetches(t *testing.T) {
	var p publishing
	for _, e := range entriesAt(Ready, make([]int, atOnce+1)...) {
		p.add(e, false)
	}
	_, alarm := alarms()
	if got := len(p.start(time.Now(), alarm)); got != atOnce {
		t.Errorf("got %d entries at once, want %d", got, atOnce)
	}
	if got := len(p.start(time.Now(), alarm)); got != 1 {
		t.Errorf("got %d entries then, want 1", got)
	}
}

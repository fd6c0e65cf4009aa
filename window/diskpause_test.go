package window

import (
	"testing"
	"time"
)

func TestDiskPauseGrowsUntilAFetchSucceeds(t *testing.T) {
	var p diskPause
	now := time.Unix(1000, 0)
	if !p.over(now) {
		t.Error("fetches cannot start")
	}
	for _, want := range []time.Duration{firstPause, 2 * firstPause, 4 * firstPause} {
		p.full(now)
		if p.over(now.Add(want-1)) || !p.over(now.Add(want)) {
			t.Errorf("got a pause of %v, want %v", p.until.Sub(now), want)
		}
	}
	p.fetched()
	p.full(now)
	if got := p.until.Sub(now); got != firstPause {
		t.Errorf("got a pause of %v after a success, want %v", got, firstPause)
	}
	p.scarce(now)
	if got := p.until.Sub(now); got != lookEvery {
		t.Errorf("got a pause of %v while free space is scarce, want %v", got, lookEvery)
	}
}

package checkpoint

import (
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/sys"
)

// Scans use at most their share of the time and one burst.
func TestScanBudgetKeepsItsShare(t *testing.T) {
	for _, cpu := range []time.Duration{100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond, time.Second} {
		var b scanBudget
		start := time.Unix(1e9, 0)
		now, used := start, time.Duration(0)
		for range 1000 {
			now = now.Add(cpu) // the scan
			used += cpu
			if next := b.spend(cpu, now); next.After(now) {
				now = next
			}
		}
		limit := now.Sub(start)/scanShare + scanBurst + cpu
		if used > limit || used < limit/2 {
			t.Errorf("scans of %v: used %v in %v, want at most %v and at least half of it", cpu, used, now.Sub(start), limit)
		}
	}
	var b scanBudget
	now := time.Unix(1e9, 0)
	if next := b.spend(scanBurst, now); !next.Equal(now) {
		t.Errorf("after a burst: the next scan may begin after %v, want at once", next.Sub(now))
	}
	if got, want := b.spend(time.Millisecond, now).Sub(now), scanShare*time.Millisecond; got != want {
		t.Errorf("after a burst and 1 ms: the next scan may begin after %v, want %v", got, want)
	}
	now = now.Add(time.Minute)
	if next := b.spend(scanBurst, now); !next.Equal(now) {
		t.Errorf("a minute later: the next scan may begin after %v, want at once", next.Sub(now))
	}
}

// A scan that waits, for a core or for a disk, uses no CPU time.
func TestCPUOfExcludesWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		if got := cpuOf(func() { time.Sleep(time.Hour) }); got > time.Minute {
			t.Errorf("got %v, want much less than an hour", got)
		}
	})
	if got, want := cpuOf(func() {
		for start := sys.ThreadTime(); sys.ThreadTime() < start+time.Millisecond; {
		}
	}), time.Millisecond; got < want {
		t.Errorf("got %v, want at least %v", got, want)
	}
}

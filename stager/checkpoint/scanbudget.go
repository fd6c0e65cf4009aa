package checkpoint

import (
	"runtime"
	"time"

	"github.com/stager-dev/stager/backends/sys"
)

// Scans may use 1/scanShare of the time of one core, and scanBurst more after a pause.
const (
	scanShare = 20
	scanBurst = 100 * time.Millisecond
)

// scanBudget limits the CPU time of scans. It does not limit their duration: on a loaded machine
// a scan waits for a core, and a longer pause after it would delay checkpoints without freeing
// anything. The zero scanBudget has its whole burst.
type scanBudget struct {
	used time.Duration // CPU time that the share has not covered yet
	at   time.Time     // of the last call of spend
}

// spend records the CPU time of a scan that ended now. It returns when the next scan may begin.
func (b *scanBudget) spend(cpu time.Duration, now time.Time) time.Time {
	b.used = max(0, b.used-now.Sub(b.at)/scanShare) + cpu
	b.at = now
	return now.Add(scanShare * max(0, b.used-scanBurst))
}

// cpuOf returns the CPU time of f, which must not start goroutines. It is at most the duration of
// f.
func cpuOf(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began, start := time.Now(), sys.ThreadTime()
	f()
	took := time.Since(began)
	if end := sys.ThreadTime(); start >= 0 && end >= start {
		return min(took, end-start)
	}
	return took
}

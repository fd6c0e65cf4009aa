package checkpoint

import (
	"cmp"
	"time"
)

// Due returns how many bytes must still be sent to finish the newest complete checkpoint, and
// by when. The bytes include the upload in progress before it. The checkpoint should be saved
// before the next one is expected, after the same interval as between the last two. It should
// also be saved within Config.Grace, the time that it would have if the job ended just when it
// was complete. A quarter of the shorter period is kept in reserve. Due returns zeros if nothing
// is pending, or if neither period is known.
func (u *Uploader) Due() (left int64, by time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	steps := u.pendingLocked()
	within := min(cmp.Or(max(u.results.apart, 0), u.cfg.Grace), cmp.Or(u.cfg.Grace, u.results.apart))
	if len(steps) == 0 || within <= 0 {
		return 0, time.Time{}
	}
	newest := u.snaps[steps[0]]
	left = totalSize(newest.Files)
	if up := u.sending.now; up != nil {
		if up.snap != newest {
			left += up.total
		}
		left -= up.done.Load()
	}
	return max(left, 0), newest.Complete.Add(within / 4 * 3)
}

// warnOverdue warns once about a checkpoint that is still incomplete after twice the interval
// between the last two.
func (u *Uploader) warnOverdue(name string, e *entry) {
	u.mu.Lock()
	apart := u.results.apart
	u.mu.Unlock()
	age := time.Since(e.first)
	if e.warned || apart <= 0 || age < 2*apart {
		return
	}
	e.warned = true
	u.log.Warn("a checkpoint is still not complete, twice as long as between the last two; if it is, call stager commit, or write a marker or a temporary name first",
		"checkpoint", name, "step", e.step, "age", age.Round(time.Second), "reason", e.reason)
}

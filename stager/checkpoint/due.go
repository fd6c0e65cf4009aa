package checkpoint

import (
	"cmp"
	"time"
)

// Due is how many bytes of the newest complete checkpoint are still to be sent, with what is
// on its way before it, and by when: before the next one is expected, as far behind
// it as it came behind the one before, and within Config.Grace, which is all the time that
// it would have if the end began when it was complete; a quarter of that is spared. Without
// either there is no time.
func (u *Uploader) Due() (left int64, by time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	steps := u.pendingLocked()
	within := min(cmp.Or(max(u.apart, 0), u.cfg.Grace), cmp.Or(u.cfg.Grace, u.apart))
	if len(steps) == 0 || within <= 0 {
		return 0, time.Time{}
	}
	newest := u.snaps[steps[0]]
	left = totalSize(newest.Files)
	if up := u.uploading; up != nil {
		if up.snap != newest {
			left += up.total
		}
		left -= up.done.Load()
	}
	return max(left, 0), newest.Complete.Add(within / 4 * 3)
}

// warnOverdueLocked warns once of a checkpoint that is not complete after twice the time
// between the last two.
func (u *Uploader) warnOverdueLocked(name string, e *entry) {
	age := time.Since(e.first)
	if e.warned || u.apart <= 0 || age < 2*u.apart {
		return
	}
	e.warned = true
	u.log.Warn("a checkpoint is still not complete, twice as long as between the last two; if it is, call stager commit, or write a marker or a temporary name first",
		"checkpoint", name, "step", e.step, "age", age.Round(time.Second), "reason", e.reason)
}

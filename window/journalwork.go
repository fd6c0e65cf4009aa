package window

import "time"

// journalWork schedules the work on a journal beside adding records: syncs and compactions. At most
// one sync runs at a time, and syncs begin at least syncEvery apart. The window's mutex guards it.
type journalWork struct {
	compactAt time.Time // do not compact before
	syncAt    time.Time // do not sync before
	syncing   bool
}

// compactDue reports whether to compact the journal: because it is larger than most, because its
// records are many more than the positions that they are about, because its last line is torn, or because
// it names another plan.
func (j *journal) compactDue(now time.Time, most int64, positions int) bool {
	wanted := j.size > most || j.lines > compactFrom+4*positions || j.torn || j.stale
	return wanted && !now.Before(j.work.compactAt)
}

// compactFailed delays the next compaction.
func (j *journal) compactFailed(now time.Time) {
	j.lines = 0 // tried again after as many more
	j.work.compactAt = now.Add(lookEvery)
}

// syncDue reports whether to sync the journal now, which the caller then does. Otherwise it sets
// alarm if a sync is due later.
func (j *journal) syncDue(now time.Time, alarm func(time.Time)) bool {
	if !j.dirty || j.work.syncing {
		return false
	}
	if now.Before(j.work.syncAt) {
		alarm(j.work.syncAt)
		return false
	}
	j.work.syncing, j.work.syncAt = true, now.Add(syncEvery)
	return true
}

package window

import (
	"slices"
	"time"
)

// roomLocked reports whether size more bytes fit the budget. If not, it starts to remove files, if
// there are any that it may remove.
func (w *Window) roomLocked(now time.Time, a seq, size int64, alarm func(time.Time)) bool {
	limit := w.limitLocked()
	if w.space.used+size <= limit {
		return true
	}
	for w.space.used-w.removals.leaving+size > limit {
		freed := false
		if w.cfg.Release == ReleaseRolling {
			freed = w.replaceLocked(now, alarm)
		}
		// Later positions must not block earlier ones. That happens after a restart that recovered
		// many later files, and with retained files.
		if !freed && a.before(w.progress.top) && !w.aheadLocked(a) {
			freed = w.dropLocked(a, "space needed by an earlier shard")
		}
		if !freed {
			break
		}
	}
	return false
}

// aged is an entry that readers of a rolling window see.
type aged struct {
	*entry
	since time.Time
}

// replaceLocked acknowledges the oldest file, if it is at least MinAge old.
func (w *Window) replaceLocked(now time.Time, alarm func(time.Time)) bool {
	for len(w.aged) > 0 {
		e := w.aged[0]
		if e.state == Ready {
			if end := e.since.Add(w.cfg.MinAge); now.Before(end) {
				alarm(end)
				return false
			}
			if err := w.journal.add("ack", e.seq, ""); err != nil {
				w.troubleLocked("cannot write the journal", err) // after a kill it is fetched again
			}
			w.ackLocked(e.entry, "replaced")
		}
		w.aged = slices.Delete(w.aged, 0, 1)
		if e.state == Acked {
			return true
		}
	}
	return false
}

// dropLocked removes the ready file that is needed last, of those after a that are not open. Its
// position is fetched again later. It reports whether there was one.
func (w *Window) dropLocked(a seq, why string) bool {
	for _, e := range w.entries.droppable(a) {
		if w.stage.isOpen(e.name, e.published) {
			continue
		}
		w.replanLocked(e, why)
		return true
	}
	return false
}

// replanLocked removes a Ready file and schedules its position again.
func (w *Window) replanLocked(e *entry, why string) {
	e.planned = true
	w.moveLocked(e, Zombie, why)
	w.entries.forget(e)
	w.progress.planAgain(e.seq)
	w.removals.add(e)
}

// undropLocked restores an entry whose file a reader acquired before its removal.
func (w *Window) undropLocked(e *entry) {
	w.progress.planned(e.seq)
	e.planned = false
	w.removals.tried(e)
	w.moveLocked(e, Ready, "acquired by a reader before removal")
	w.entries.restore(e)
	w.offerLocked(e)
	w.scans.request()
}

// diskLocked reports whether the disk has room for size bytes in addition to the reserved ones,
// with MinFree left. If less than MinFree is left already, it drops the file that is needed last,
// but never the next one: readers could then never make room.
func (w *Window) diskLocked(now time.Time, size int64) bool {
	if !w.diskPause.over(now) {
		return false
	}
	if w.cfg.MinFree == 0 {
		return true
	}
	free, err := w.free()
	if err != nil {
		w.troubleLocked("cannot read the free space", err)
	} else if free-w.space.unallocated-size >= w.cfg.MinFree {
		return true
	}
	w.diskPause.scarce(now)
	if err == nil && free < w.cfg.MinFree && w.removals.leaving == 0 {
		w.relieveLocked("free space below minFree")
	}
	return false
}

// relieveLocked drops one file to free disk space: the one that is needed last, but not the next
// one that a reader receives.
func (w *Window) relieveLocked(why string) {
	// Only positions of the current epoch are leased.
	keep := w.entries.lowestReady(seq{w.progress.low.epoch + 1, 0})
	if keep.epoch > w.progress.low.epoch {
		keep = w.progress.low
	}
	w.dropLocked(keep, why)
}

package window

import (
	"slices"
	"time"
)

// removals holds the entries whose files are to be removed, and the zombies: those whose files were
// still open when that was tried. Zombies are tried again from time to time. leaving is the sum of
// the room of all entries that are marked as leaving: those to be removed, until tried. The window's
// mutex guards it.
type removals struct {
	queue     []*entry
	leaving   int64
	zombies   []*entry
	zombiesAt time.Time // next attempt
}

// add schedules the removal of a file. Its space counts as leaving until tried.
func (r *removals) add(e *entry) {
	r.queue = append(r.queue, e)
	e.leaving = true
	r.leaving += e.room()
}

// carryOver schedules the move of a file to the position that reuses it: its space stays taken.
func (r *removals) carryOver(e *entry) { r.queue = append(r.queue, e) }

// take returns the entries to try now: at most atOnce new ones, and the zombies if they are due.
func (r *removals) take(now time.Time, alarm func(time.Time)) (try []*entry) {
	n := min(len(r.queue), atOnce)
	try = slices.Clone(r.queue[:n])
	r.queue = slices.Delete(r.queue, 0, n)
	if len(r.zombies) > 0 {
		if now.Before(r.zombiesAt) {
			alarm(r.zombiesAt)
		} else {
			try = append(try, r.zombies...)
			r.zombies = nil
		}
	}
	return try
}

// tried records that a removal was tried, or that a reader acquired the file before it was.
func (r *removals) tried(e *entry) {
	if e.leaving {
		e.leaving = false
		r.leaving -= e.room()
	}
}

// open adds an entry whose file is still open, or could not be removed.
func (r *removals) open(e *entry) { r.zombies = append(r.zombies, e) }

// released makes zombies due whose files readers moved to done/: found has them by inode. Zombies
// that are being tried now are found by the next scan.
func (r *removals) released(now time.Time, found map[uint64]place) {
	for _, e := range r.zombies {
		if at, ok := found[e.ino]; ok && at.reader == "" {
			e.move(at)
			r.zombiesAt = now
		}
	}
}

// checked sets the time of the next attempt to remove zombies after one was due.
func (r *removals) checked(now time.Time) {
	if len(r.zombies) > 0 && !now.Before(r.zombiesAt) {
		r.zombiesAt = now.Add(lookEvery)
	}
}

// withdraw removes all entries that have not been taken, and returns them.
func (r *removals) withdraw() []*entry {
	all := r.queue
	r.queue = nil
	for _, e := range all {
		r.tried(e)
	}
	return all
}

// empty reports whether all removals were tried at least once, or are being tried.
func (r *removals) empty() bool { return len(r.queue) == 0 }

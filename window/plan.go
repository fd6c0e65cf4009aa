package window

import (
	"time"
)

const (
	atOnce      = 256 // maximum files published or removed between two plans, so that fetches start meanwhile
	pollEvery   = 500 * time.Millisecond
	lookEvery   = 500 * time.Millisecond // between checks of zombies, and of a full disk
	longestNap  = time.Minute
	keepEnds    = 64 // number of END markers that are retained
	compactFrom = 10_000
)

// todo is the work that plan returns. None of it has started.
type todo struct {
	fetch   []*entry // already in state Fetching
	show    []*entry
	remove  []*entry
	ends    []int
	order   int // the epoch whose order to compute; -1: none
	more    int // the epoch to call More for; -1: none
	scan    bool
	compact bool
	sync    bool          // sync the journal
	done    bool          // every epoch is delivered and acknowledged
	sleep   time.Duration // until the next plan, unless woken
}

// work reports whether the work may make another plan possible.
func (t todo) work() bool { return len(t.show)+len(t.remove)+len(t.ends) > 0 || t.scan }

// plan makes every transition that time and budget allow, and returns the work to do. It only reads
// the disk's free space and, when room must be made, whether a file is open.
func (w *Window) plan(now time.Time) todo {
	t := todo{order: -1, more: -1, sleep: longestNap}
	alarm := func(at time.Time) { t.sleep = min(t.sleep, max(0, at.Sub(now))) }

	w.expireLocked(now)
	if !w.leases.next.IsZero() {
		alarm(w.leases.next)
	}
	w.advanceLocked()

	room := w.diskLocked(now, 0)
	if w.life.failed == nil {
		w.admitLocked(now, alarm)
		if room {
			t.fetch = w.startLocked(now, alarm)
		}
	}
	if !w.diskPause.over(now) {
		alarm(w.diskPause.until)
	}
	if !w.calls.ordering {
		if t.order = w.progress.missingOrder(w.cfg.Reuse != ReuseNone); t.order >= 0 {
			w.calls.ordering = true
		}
	}

	if t.more = w.moreWantedLocked(); t.more >= 0 {
		w.calls.asking = true
	}

	t.show = w.publishing.start(now, alarm)
	t.remove = w.removals.take(now, alarm)
	t.ends = w.ends.take(now, alarm)
	t.scan = w.scans.due(now, alarm)
	t.compact = w.journal.compactDue(now, w.journalMost(), len(w.entries.active)+w.progress.gaps())
	t.sync = w.journal.syncDue(now, alarm)

	w.readyLocked()
	w.serveLocked(now)
	w.accountLocked(now)
	if len(w.waiting.calls) > 0 {
		alarm(now.Add(sampleEvery))
		if len(t.remove) == 0 { // otherwise room is being made
			w.sceneLocked(now)
		}
	}
	t.done = w.doneLocked() && !t.work()
	return t
}

// advanceLocked moves on past the finished positions, and from epoch to epoch.
func (w *Window) advanceLocked() {
	for w.progress.atEnd() && !w.heldEndLocked(w.progress.low.epoch) {
		ended := w.progress.low.epoch
		if w.cfg.Release != ReleaseRolling {
			w.ends.add(ended)
		}
		w.log.Info("epoch ended", "epoch", ended)
		w.progress.begin()
		w.reuse.forget(ended)
		w.metrics.epoch.Set(float64(w.progress.low.epoch))
		w.publishing.begin(w.progress.low.epoch)
	}
}

// doneLocked reports whether there is nothing more to do.
func (w *Window) doneLocked() bool {
	if w.cfg.Release == ReleaseNever {
		_, more := w.nextLocked()
		return !more && !w.calls.ordering && len(w.progress.orders)+w.progress.low.epoch > 0 &&
			w.fetches.count()+w.publishing.count() == 0 && w.removals.empty()
	}
	return w.progress.over(w.progress.low.epoch) && w.ends.empty() && w.removals.empty()
}

// nextLocked returns the lowest position that can be reserved.
func (w *Window) nextLocked() (seq, bool) {
	return w.progress.first(w.entries.has, w.awaitedLocked)
}

// admitLocked reserves room for the next positions, strictly in order, and only as many as can be
// fetched soon.
func (w *Window) admitLocked(now time.Time, alarm func(time.Time)) {
	for len(w.fetches.waiting) < w.cfg.Parallel {
		a, ok := w.nextLocked()
		if !ok {
			return
		}
		index := w.progress.item(a)
		item, err := w.items.get(index)
		if err != nil {
			w.life.failed = err
			return
		}
		size := item.room()
		if !w.roomLocked(now, a, size, alarm) || !w.diskLocked(now, size) {
			return
		}
		e := newEntry(a, index, item, a.fileName(item.Name))
		e.fetching = &fetching{of: item}
		w.entries.active[a] = e
		w.progress.reserved(a)
		w.moveLocked(e, Reserved, "next in the plan")
		w.fetches.add(e)
		w.space.reserve(e)
	}
}

// startLocked returns the entries whose fetches can start now.
func (w *Window) startLocked(now time.Time, alarm func(time.Time)) []*entry {
	start := w.fetches.start(now, w.cfg.Parallel, alarm)
	for _, e := range start {
		w.moveLocked(e, Fetching, "fetch slot free")
	}
	return start
}

// landLocked adds a verified file. It is published only once its epoch is the current one.
func (w *Window) landLocked(e *entry) {
	w.publishing.add(e, e.epoch > w.progress.low.epoch && w.cfg.Release != ReleaseRolling)
}

// readyLocked sets ready once readers can start.
func (w *Window) readyLocked() {
	if w.life.ready {
		return
	}
	files := w.space.of(Ready).items + w.space.of(Leased).items - w.publishing.count()
	bytes := w.space.of(Ready).bytes + w.space.of(Leased).bytes
	enough := files >= max(1, w.cfg.MinReady.Files) && bytes >= w.cfg.MinReady.Bytes
	// Everything that fits is there: no more arrives before readers make room.
	full := files > 0 && w.fetches.count()+w.publishing.count() == 0 && !w.calls.ordering && !w.awaitsListLocked()
	if w.life.ready = enough || full || w.doneLocked(); w.life.ready {
		close(w.readied)
	}
}

// offerLocked adds a file that is Ready and published.
func (w *Window) offerLocked(e *entry) {
	switch w.cfg.Release {
	case ReleaseLease:
		w.offers.add(e, w.space.of(Ready).items)
	case ReleaseRolling:
		w.aged = append(w.aged, aged{e, time.Now()})
	}
}

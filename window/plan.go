package window

import (
	"container/heap"
	"slices"
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
	if !w.leaseAt.IsZero() {
		alarm(w.leaseAt)
	}
	w.advanceLocked()

	room := w.diskLocked(now, 0)
	if w.failed == nil {
		w.admitLocked(now, alarm)
		if room {
			t.fetch = w.startLocked(now, alarm)
		}
	}
	if !w.diskPause.over(now) {
		alarm(w.diskPause.until)
	}
	if !w.ordering {
		if t.order = w.orderWantedLocked(); t.order >= 0 {
			w.ordering = true
		}
	}

	if t.more = w.moreWantedLocked(); t.more >= 0 {
		w.growth.asking = true
	}

	t.show = w.publishesLocked(now, alarm)
	t.remove = w.removalsLocked(now, alarm)
	t.ends = w.ends.take(now, alarm)
	t.scan = w.scans.due(now, alarm)
	t.compact = w.journal.compactDue(now, w.journalMost(), len(w.active)+len(w.settled))
	t.sync = w.journal.syncDue(now, alarm)

	w.readyLocked()
	w.serveLocked(now)
	w.accountLocked(now)
	if len(w.waiters) > 0 {
		alarm(now.Add(sampleEvery))
		if len(t.remove) == 0 { // otherwise room is being made
			w.sceneLocked(now)
		}
	}
	t.done = w.doneLocked() && !t.work()
	return t
}

// advanceLocked moves low past the finished positions, and from epoch to epoch.
func (w *Window) advanceLocked() {
	for !w.overLocked(w.low.epoch) {
		order, known := w.orders[w.low.epoch]
		if !known {
			return
		}
		for w.low.pos < len(order) && (order[w.low.pos] == others || w.settled[w.low]) {
			delete(w.settled, w.low)
			w.low.pos++
		}
		if w.low.pos < len(order) || w.growsLocked(w.low.epoch) || w.heldEndLocked(w.low.epoch) {
			return
		}
		if w.cfg.Release != ReleaseRolling {
			w.ends.add(w.low.epoch)
		}
		w.log.Info("epoch ended", "epoch", w.low.epoch)
		delete(w.orders, w.low.epoch)
		delete(w.demand, w.low.epoch)
		w.low = seq{w.low.epoch + 1, 0}
		w.next = w.low // skips positions that waited for reuse, and files that are there
		w.metrics.epoch.Set(float64(w.low.epoch))
		w.later = slices.DeleteFunc(w.later, func(e *entry) bool {
			if e.epoch == w.low.epoch {
				w.toShow = append(w.toShow, e)
			}
			return e.epoch <= w.low.epoch
		})
	}
}

// overLocked reports whether the plan ends before this epoch.
func (w *Window) overLocked(epoch int) bool { return w.cfg.Epochs > 0 && epoch >= w.cfg.Epochs }

// doneLocked reports whether there is nothing more to do.
func (w *Window) doneLocked() bool {
	if w.cfg.Release == ReleaseNever {
		_, more := w.nextLocked()
		return !more && !w.ordering && len(w.orders)+w.low.epoch > 0 &&
			len(w.queue)+len(w.fetching)+len(w.toShow)+w.showing+len(w.removals) == 0
	}
	return w.overLocked(w.low.epoch) && w.ends.empty() && len(w.removals) == 0
}

// orderWantedLocked returns the epoch whose order is needed next; -1: none. Orders are retained for
// the current epoch and the next one, which is as far as fetching runs ahead.
func (w *Window) orderWantedLocked() int {
	last := min(w.low.epoch+1, w.next.epoch)
	if w.cfg.Reuse != ReuseNone {
		last = w.low.epoch + 1 // that epoch may reuse what is acknowledged now
	}
	for epoch := w.low.epoch; epoch <= last && !w.overLocked(epoch); epoch++ {
		if _, known := w.orders[epoch]; !known {
			return epoch
		}
	}
	return -1
}

// nextLocked returns the lowest position that can be reserved.
func (w *Window) nextLocked() (seq, bool) {
	for _, a := range w.again {
		if !a.before(w.next) {
			break
		}
		if !w.awaitedLocked(a, int(w.orders[a.epoch][a.pos])) {
			return a, true
		}
	}
	if w.next.before(w.low) {
		w.next = w.low
	}
	for w.next.epoch <= w.low.epoch+1 && !w.overLocked(w.next.epoch) {
		order, known := w.orders[w.next.epoch]
		if !known {
			return seq{}, false
		}
		if w.next.pos >= len(order) {
			if w.growsLocked(w.next.epoch) {
				return seq{}, false
			}
			w.next = seq{w.next.epoch + 1, 0}
			continue
		}
		if order[w.next.pos] != others && !w.settled[w.next] && w.active[w.next] == nil && !w.awaitedLocked(w.next, int(order[w.next.pos])) {
			return w.next, true
		}
		w.next.pos++
	}
	return seq{}, false
}

// admitLocked reserves room for the next positions, strictly in order, and only as many as can be
// fetched soon.
func (w *Window) admitLocked(now time.Time, alarm func(time.Time)) {
	for len(w.queue) < w.cfg.Parallel {
		a, ok := w.nextLocked()
		if !ok {
			return
		}
		index := int(int(w.orders[a.epoch][a.pos]))
		item, err := w.itemLocked(index)
		if err != nil {
			w.failed = err
			return
		}
		size := item.room()
		if !w.roomLocked(now, a, size, alarm) || !w.diskLocked(now, size) {
			return
		}
		if at, found := slices.BinarySearchFunc(w.again, a, seq.compare); found {
			w.again = slices.Delete(w.again, at, at+1)
		}
		e := &entry{seq: a, item: index, of: item, name: a.fileName(item.Name), size: item.Size, beside: item.Beside, state: Planned}
		w.active[a] = e
		if !a.before(w.top) {
			w.top = seq{a.epoch, a.pos + 1}
		}
		w.moveLocked(e, Reserved, "next in the plan")
		w.enqueueLocked(e)
		w.unallocated += size
	}
}

// enqueueLocked inserts an entry into the queue of fetches.
func (w *Window) enqueueLocked(e *entry) {
	at, _ := slices.BinarySearchFunc(w.queue, e, func(a, b *entry) int { return a.compare(b.seq) })
	w.queue = slices.Insert(w.queue, at, e)
}

// firstAlone is how long the first fetch has the network to itself. All readers wait for it, and n
// concurrent fetches would make it n times slower.
const firstAlone = 2 * time.Second

// startLocked returns the entries whose fetches can start now.
func (w *Window) startLocked(now time.Time, alarm func(time.Time)) (start []*entry) {
	w.queue = slices.DeleteFunc(w.queue, func(e *entry) bool {
		most := w.cfg.Parallel
		if !w.brought && now.Before(w.aloneUntil) {
			most = 1
			alarm(w.aloneUntil)
		}
		switch {
		case len(w.fetching) >= most:
			return false
		case now.Before(e.notBefore):
			alarm(e.notBefore)
			return false
		}
		w.moveLocked(e, Fetching, "fetch slot free")
		w.fetching[e] = true
		if w.aloneUntil.IsZero() {
			w.aloneUntil = now.Add(firstAlone)
		}
		start = append(start, e)
		return true
	})
	return start
}

// landLocked adds a verified file. It is published only once its epoch is the current one, so that
// readers that use only the file protocol cannot run past the end of an epoch.
func (w *Window) landLocked(e *entry) {
	if e.epoch <= w.low.epoch || w.cfg.Release == ReleaseRolling {
		w.toShow = append(w.toShow, e)
	} else {
		w.later = append(w.later, e)
	}
}

// publishesLocked returns the entries to publish now.
func (w *Window) publishesLocked(now time.Time, alarm func(time.Time)) (show []*entry) {
	w.toShow = slices.DeleteFunc(w.toShow, func(e *entry) bool {
		switch {
		case e.state != Ready:
			return true // it was dropped meanwhile
		case len(show) >= atOnce:
			return false
		case now.Before(e.notBefore):
			alarm(e.notBefore)
			return false
		}
		e.showing = true
		w.showing++
		show = append(show, e)
		return true
	})
	return show
}

// removalsLocked returns the entries whose files to remove and, from time to time, those whose
// files were open.
func (w *Window) removalsLocked(now time.Time, alarm func(time.Time)) (removeFile []*entry) {
	n := min(len(w.removals), atOnce)
	removeFile = slices.Clone(w.removals[:n])
	w.removals = slices.Delete(w.removals, 0, n)
	if len(w.zombies) > 0 {
		if now.Before(w.zombiesAt) {
			alarm(w.zombiesAt)
		} else {
			removeFile = append(removeFile, w.zombies...)
			w.zombies = nil
		}
	}
	return removeFile
}

// readyLocked sets ready once readers can start.
func (w *Window) readyLocked() {
	if w.ready {
		return
	}
	files := w.totals[Ready].items + w.totals[Leased].items - len(w.toShow) - w.showing
	bytes := w.totals[Ready].bytes + w.totals[Leased].bytes
	enough := files >= max(1, w.cfg.MinReady.Files) && bytes >= w.cfg.MinReady.Bytes
	// Everything that fits is there: no more arrives before readers make room.
	full := files > 0 && len(w.queue)+len(w.fetching)+len(w.toShow)+w.showing == 0 && !w.ordering
	if w.ready = enough || full || w.doneLocked(); w.ready {
		close(w.readied)
	}
}

// readyHeap is a min-heap of the entries to lease. Entries that are no longer Ready are removed
// when they reach the top.
type readyHeap []*entry

func (h readyHeap) Len() int           { return len(h) }
func (h readyHeap) Less(i, j int) bool { return h[i].before(h[j].seq) }
func (h readyHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *readyHeap) Push(x any)        { *h = append(*h, x.(*entry)) }
func (h *readyHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}

// offerLocked adds a file that is Ready and published.
func (w *Window) offerLocked(e *entry) {
	switch w.cfg.Release {
	case ReleaseLease:
		if len(w.offered) > 2*w.totals[Ready].items+64 {
			// Readers that use the file protocol never pop them.
			w.offered = slices.DeleteFunc(w.offered, func(e *entry) bool { return e.state != Ready })
			heap.Init(&w.offered)
		}
		heap.Push(&w.offered, e)
	case ReleaseRolling:
		w.aged = append(w.aged, e)
	}
}

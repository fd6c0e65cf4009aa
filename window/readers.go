package window

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// mostReaders is the maximum number of readers to remember. Beyond it, the reader that has been
// silent longest is forgotten, and would not receive ends of epochs that it missed.
const mostReaders = 4096

// reader is a client that leases or claims shards.
type reader struct {
	name  string
	epoch int // the next epoch whose end it is to receive
	held  int
	given int // deliveries since the start
	nacks int // how many of them it refused
	seen  time.Time
	waits map[Cause]time.Duration
	mark  time.Time // waits is counted up to this time
	// starved is the last time at which it waited and held nothing.
	starved time.Time
	asks    int // blocked calls of Lease
}

// readers are the readers that the window knows, by name. The window's mutex guards it.
type readers map[string]*reader

// get returns the reader with that name. A new one, which added reports, begins with an epoch.
func (s readers) get(now time.Time, name string, epoch int) (rd *reader, added bool) {
	if rd := s[name]; rd != nil {
		return rd, false
	}
	if len(s) >= mostReaders {
		var silent *reader
		for _, rd := range s {
			if rd.held == 0 && rd.asks == 0 && (silent == nil || rd.seen.Before(silent.seen)) {
				silent = rd
			}
		}
		if silent != nil {
			delete(s, silent.name)
		}
	}
	rd = &reader{name: name, epoch: epoch, waits: map[Cause]time.Duration{}, seen: now}
	s[name] = rd
	return rd, true
}

// sorted returns the readers by name.
func (s readers) sorted() []*reader {
	return slices.SortedFunc(maps.Values(s), func(a, b *reader) int { return cmp.Compare(a.name, b.name) })
}

// readerLocked returns the reader with that name, and registers a new one.
func (w *Window) readerLocked(now time.Time, name string) *reader {
	rd, added := w.readers.get(now, name, w.progress.low.epoch)
	if added {
		w.recordReaderLocked(rd)
	}
	return rd
}

// recordReaderLocked writes the reader's epoch to the journal.
func (w *Window) recordReaderLocked(rd *reader) {
	if w.life.closed {
		return
	}
	if err := w.journal.add("reader", rd.name, rd.epoch); err != nil {
		w.troubleLocked("cannot write the journal", err) // after a kill the reader may receive the end again
	}
}

// endForLocked returns the end of an epoch that the reader is to receive now, if any.
func (w *Window) endForLocked(rd *reader) (*EndError, bool) {
	switch {
	case rd.epoch < w.progress.low.epoch:
		rd.epoch++
		w.recordReaderLocked(rd)
		return &EndError{Epoch: rd.epoch - 1}, true
	case w.progress.over(w.progress.low.epoch):
		return &EndError{Epoch: w.cfg.Epochs - 1}, true
	}
	return nil, false
}

// awaitLocked blocks a call of Lease.
func (w *Window) awaitLocked(now time.Time, rd *reader, r LeaseRequest) *waiter {
	w.accountLocked(now)
	return w.waiting.add(now, rd, r)
}

// giveUp ends a wait. It returns an outcome that arrived in the last moment, or else err, or else a
// *WaitError with the cause.
func (w *Window) giveUp(x *waiter, err error) (Lease, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	select {
	case o := <-x.got:
		if l := w.leases.byID[o.lease.ID]; err != nil && l != nil {
			w.withdrawLocked(now, l) // the caller is gone
			return Lease{}, err
		}
		return o.lease, o.err
	default:
	}
	w.accountLocked(now)
	w.waiting.remove(x)
	if err == nil {
		err = &WaitError{w.causeLocked(now)}
	}
	return Lease{}, err
}

// serveLocked serves the blocked calls of Lease, first come first served.
func (w *Window) serveLocked(now time.Time) {
	if len(w.waiting.calls) == 0 {
		return
	}
	w.accountLocked(now)
	w.waiting.serve(func(rd *reader, r LeaseRequest) (Lease, error) { return w.grantLocked(now, rd, r) })
}

// accountLocked adds the time since its last call to the waits of readers that wait and hold
// nothing.
func (w *Window) accountLocked(now time.Time) {
	w.waiting.account(now)
	w.sayStarvationLocked(now)
	if starving := &w.waiting.starving; now.Sub(starving.now.began) >= starvePeriod {
		starving.turn(now)
	}
	w.waiting.cause = w.causeLocked(now)
}

// Starved reports whether readers that hold nothing wait for bytes from the object store.
func (w *Window) Starved() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiting.starved()
}

// causeLocked returns what a reader that cannot lease anything waits for.
func (w *Window) causeLocked(now time.Time) Cause {
	if !w.diskPause.over(now) {
		return CauseDisk
	}
	first := w.fetches.first(w.progress.low.epoch)
	if first != nil && first.flowing() > 0 {
		return CauseNetwork
	}
	if first != nil || w.publishing.count() > 0 || w.fetches.waitsFor(w.progress.low.epoch) {
		return CauseBackend
	}
	a, more := w.nextLocked()
	known := w.progress.known(w.progress.low.epoch)
	switch {
	case w.calls.ordering && !more && !known: // that of the next epoch makes nobody wait
		return CauseBackend
	case w.awaitsConfirmLocked(), w.awaitsListLocked():
		return CauseBackend
	case !more && w.calls.asking:
		return w.cfg.Waits()
	case !more || a.epoch > w.progress.low.epoch:
		return CauseReaders // other readers hold the rest of the epoch
	case w.space.used+w.nextItemLocked(a).room() > w.limitLocked():
		return CauseBudget
	}
	return CauseBackend
}

// restHeldLocked reports whether readers hold all that is left of the current epoch, or the group
// has acknowledged it.
func (w *Window) restHeldLocked(group int) bool {
	if a, more := w.nextLocked(); !w.progress.known(w.progress.low.epoch) && w.cfg.More == nil || more && a.epoch == w.progress.low.epoch {
		return false // some of it was never fetched
	}
	if w.progress.grows(w.progress.low.epoch) && !w.calls.later {
		return false // more items may follow at any time
	}
	for _, e := range w.entries.active {
		if e.epoch != w.progress.low.epoch {
			continue
		}
		if e.state != Leased || e.shares() != nil && !e.shares()[group].acked && e.shares()[group].lease == nil {
			return false
		}
	}
	return true
}

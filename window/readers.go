package window

import (
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

// readerLocked returns the reader with that name, and registers a new one.
func (w *Window) readerLocked(now time.Time, name string) *reader {
	if rd := w.readers[name]; rd != nil {
		return rd
	}
	if len(w.readers) >= mostReaders {
		var silent *reader
		for _, rd := range w.readers {
			if rd.held == 0 && rd.asks == 0 && (silent == nil || rd.seen.Before(silent.seen)) {
				silent = rd
			}
		}
		if silent != nil {
			delete(w.readers, silent.name)
		}
	}
	rd := &reader{name: name, epoch: w.progress.low.epoch, waits: map[Cause]time.Duration{}, seen: now}
	w.readers[name] = rd
	w.recordReaderLocked(rd)
	return rd
}

// recordReaderLocked writes the reader's epoch to the journal.
func (w *Window) recordReaderLocked(rd *reader) {
	if w.closed {
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

// waiter is a blocked call of Lease.
type waiter struct {
	rd      *reader
	request LeaseRequest
	got     chan outcome // buffered, so that the sender never blocks
}

type outcome struct {
	lease Lease
	err   error
}

func (w *Window) awaitLocked(now time.Time, rd *reader, r LeaseRequest) *waiter {
	w.accountLocked(now)
	if rd.asks == 0 {
		rd.mark = now
	}
	rd.asks++
	x := &waiter{rd, r, make(chan outcome, 1)}
	w.waiters = append(w.waiters, x)
	return x
}

// giveUp ends a wait. It returns an outcome that arrived in the last moment, or else err, or else a
// *WaitError with the cause.
func (w *Window) giveUp(x *waiter, err error) (Lease, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	select {
	case o := <-x.got:
		if l := w.leases[o.lease.ID]; err != nil && l != nil {
			w.withdrawLocked(now, l) // the caller is gone
			return Lease{}, err
		}
		return o.lease, o.err
	default:
	}
	w.accountLocked(now)
	for i, other := range w.waiters {
		if other == x {
			w.waiters = append(w.waiters[:i], w.waiters[i+1:]...)
			x.rd.asks--
			break
		}
	}
	if err == nil {
		err = &WaitError{w.causeLocked(now)}
	}
	return Lease{}, err
}

// serveLocked serves the blocked calls of Lease, first come first served.
func (w *Window) serveLocked(now time.Time) {
	if len(w.waiters) == 0 {
		return
	}
	w.accountLocked(now)
	still := w.waiters[:0]
	for _, x := range w.waiters {
		l, err := w.grantLocked(now, x.rd, x.request)
		if waits(err) {
			still = append(still, x)
			continue
		}
		x.rd.asks--
		x.got <- outcome{l, err}
	}
	clear(w.waiters[len(still):])
	w.waiters = still
}

// accountLocked adds the time since its last call to the waits of readers that wait and hold
// nothing.
func (w *Window) accountLocked(now time.Time) {
	for _, x := range w.waiters {
		d := now.Sub(x.rd.mark)
		x.rd.mark = now
		if x.rd.held == 0 && d > 0 {
			x.rd.waits[w.cause] += d
			x.rd.starved = now
			w.metrics.wait(w.cause, d)
			w.starving.now.waits[w.cause] += d
		}
	}
	w.sayStarvationLocked(now)
	if now.Sub(w.starving.now.began) >= starvePeriod {
		w.starving.turn(now)
	}
	w.cause = w.causeLocked(now)
}

// Starved reports whether readers that hold nothing wait for bytes from the object store.
func (w *Window) Starved() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return (w.cause == CauseBackend || w.cause == CauseNetwork) &&
		slices.ContainsFunc(w.waiters, func(x *waiter) bool { return x.rd.held == 0 })
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
	_, known := w.progress.orders[w.progress.low.epoch]
	switch {
	case w.calls.ordering && !more && !known: // that of the next epoch makes nobody wait
		return CauseBackend
	case w.awaitsConfirmLocked():
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
	if a, more := w.nextLocked(); w.progress.orders[w.progress.low.epoch] == nil && w.cfg.More == nil || more && a.epoch == w.progress.low.epoch {
		return false // some of it was never fetched
	}
	if w.progress.grows(w.progress.low.epoch) && !w.calls.later {
		return false // more items may follow at any time
	}
	for _, e := range w.active {
		if e.epoch != w.progress.low.epoch {
			continue
		}
		if e.state != Leased || e.shares != nil && !e.shares[group].acked && e.shares[group].lease == nil {
			return false
		}
	}
	return true
}

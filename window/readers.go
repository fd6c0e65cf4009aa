package window

import (
	"slices"
	"time"
)

// mostReaders is how many readers are remembered; beyond it the one that was silent
// longest is forgotten, and would not be told of ends that it missed.
const mostReaders = 4096

// reader is who takes shards.
type reader struct {
	name  string
	epoch int // whose end it is to be told next
	held  int
	given int // since the start
	nacks int // of these
	seen  time.Time
	waits map[Cause]time.Duration
	mark  time.Time // up to which waits has counted
	// starved is when it last waited and held nothing.
	starved time.Time
	asks    int // calls that wait
}

// readerLocked is the reader of that name, who takes part from now on if it is new.
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
	rd := &reader{name: name, epoch: w.low.epoch, waits: map[Cause]time.Duration{}, seen: now}
	w.readers[name] = rd
	w.recordReaderLocked(rd)
	return rd
}

// recordReaderLocked writes down what a reader knows.
func (w *Window) recordReaderLocked(rd *reader) {
	if w.closed {
		return
	}
	if err := w.journal.add("reader", rd.name, rd.epoch); err != nil {
		w.troubleLocked("write the journal", err) // after a kill it may be told again
	}
}

// endForLocked is the end that the reader is to be told now, if there is one.
func (w *Window) endForLocked(rd *reader) (*EndError, bool) {
	switch {
	case rd.epoch < w.low.epoch:
		rd.epoch++
		w.recordReaderLocked(rd)
		return &EndError{Epoch: rd.epoch - 1}, true
	case w.overLocked(w.low.epoch):
		return &EndError{Epoch: w.cfg.Epochs - 1}, true
	}
	return nil, false
}

// waiter is a call of Lease that waits.
type waiter struct {
	rd      *reader
	request LeaseRequest
	got     chan outcome // of one, so that nobody waits to tell
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

// giveUp ends a wait: with what came in the last moment, or with err, or with what
// is waited for if err is nil.
func (w *Window) giveUp(x *waiter, err error) (Lease, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	select {
	case o := <-x.got:
		if l := w.leases[o.lease.ID]; err != nil && l != nil {
			w.withdrawLocked(now, l) // nobody is there to take it
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

// serveLocked gives those who wait what there is for them, first come first served.
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

// accountLocked adds up the time in which readers waited and held nothing, for
// what was the cause since the last call.
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

// Starved tells whether readers who hold nothing wait for bytes that are to come from
// the store.
func (w *Window) Starved() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return (w.cause == CauseBackend || w.cause == CauseNetwork) &&
		slices.ContainsFunc(w.waiters, func(x *waiter) bool { return x.rd.held == 0 })
}

// causeLocked is what a reader that gets nothing now waits for.
func (w *Window) causeLocked(now time.Time) Cause {
	if now.Before(w.diskUntil) {
		return CauseDisk
	}
	var first *entry // of those on their way: what a reader gets next
	for e := range w.fetching {
		if e.epoch == w.low.epoch && (first == nil || e.before(first.seq)) {
			first = e
		}
	}
	if first != nil && first.flowing() > 0 {
		return CauseNetwork
	}
	if first != nil || len(w.toShow)+w.showing > 0 || len(w.queue) > 0 && w.queue[0].epoch == w.low.epoch {
		return CauseBackend
	}
	a, more := w.nextLocked()
	switch {
	case w.ordering && !more:
		return CauseBackend
	case !more && w.growth.asking:
		return w.cfg.Waits()
	case !more || a.epoch > w.low.epoch:
		return CauseReaders // the rest of the epoch is with others
	case w.used+w.cfg.Items[w.orders[a.epoch][a.pos]].room() > w.cfg.Size-w.ownMost:
		return CauseBudget
	}
	return CauseBackend
}

// restHeldLocked tells whether all that is left of the current epoch is with readers,
// or was acknowledged by the group.
func (w *Window) restHeldLocked(group int) bool {
	if a, more := w.nextLocked(); w.orders[w.low.epoch] == nil && w.cfg.More == nil || more && a.epoch == w.low.epoch {
		return false // there is some that was never fetched
	}
	if w.growsLocked(w.low.epoch) && !w.growth.later {
		return false // more may come at any time
	}
	for _, e := range w.active {
		if e.epoch != w.low.epoch {
			continue
		}
		if e.state != Leased || e.shares != nil && !e.shares[group].acked && e.shares[group].lease == nil {
			return false
		}
	}
	return true
}

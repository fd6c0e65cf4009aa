package window

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// failuresOfPoison is the number of refusals or deaths of readers that quarantine a shard.
const failuresOfPoison = 3

// deathsApart is the minimum time between two deaths of readers that both count against a shard.
// When a trainer exits, all its readers die one after the other. The shard that the first one held
// passes to the next reader that waits, and so on, although the shard does not cause the deaths.
// Launchers give their workers up to 30 s to exit (torchrun, Kubernetes).
const deathsApart = 30 * time.Second

// blame is what the end of a lease counts as against its shard.
type blame int

const (
	noBlame blame = iota
	readerDied
	readerRefused
)

// LeaseRequest is a reader's request for a shard.
type LeaseRequest struct {
	Reader string
	Wait   time.Duration // how long to wait for a shard; 0: return at once
	// Bound leases do not expire: the caller calls Return when the reader's connection ends.
	Bound bool
	// Epoch is the epoch that the reader is in, if it sent one. A late reader receives the end of
	// that epoch, and no shard of the next.
	Epoch *int
	// Group is the reader's group, from 0 to Config.Groups-1; nil if the window is not broadcast.
	Group *int
	// EndEarly ends the epoch for this reader as soon as other readers hold the rest of it. It is
	// for the workers of a data loader that reads from them in turn: a worker that waited for the
	// others would deadlock with the loader. Shards that others return later go to the next
	// reader that requests one.
	EndEarly bool
	// Mixes means that the reader shuffles the samples, so that their count does not identify the
	// samples that were used.
	Mixes bool
}

// Lease is a shard that one reader holds.
type Lease struct {
	ID, Reader string
	Epoch, Pos int
	Path       string // absolute
	Name       string // of the item
	Tree       bool   // it is a directory
	Size       int64
	Samples    int
	Digest     string
	Attempt    int // number of deliveries of this position, including this one
	Skip       int // number of first samples to skip: they were used before the last Rewind
}

// Lease returns the first shard in plan order that no reader holds. If there is none, it waits up
// to r.Wait.
//
// An *EndError reports that an epoch has ended. Each reader receives it once for each epoch that
// ended since its first request, before any shard of the next epoch. After the last epoch, every
// call returns it. A *WaitError reports that nothing became ready in time, and the cause. Other
// errors are a *ReleaseError if the window has no leases, a *GroupError, a *BadItemError if the
// epoch has failed, ErrClosed, and the context's error.
//
// After a restart, a request for a bound lease ends the reader's recovered leases that it has neither
// attached nor renewed. Their shards are redelivered.
func (w *Window) Lease(ctx context.Context, r LeaseRequest) (Lease, error) {
	if w.cfg.Release != ReleaseLease {
		return Lease{}, &ReleaseError{w.cfg.Input, w.cfg.Release}
	}
	if _, err := w.groupOf(r); err != nil {
		return Lease{}, err
	}
	w.mu.Lock()
	now := time.Now()
	rd := w.readerLocked(now, r.Reader)
	rd.seen = now
	if r.Epoch != nil {
		rd.epoch = min(*r.Epoch, w.progress.low.epoch+1)
	}
	if r.Bound {
		w.disownLocked(now, rd)
	}
	l, err := w.grantLocked(now, rd, r)
	if !waits(err) || r.Wait <= 0 {
		if err == nil {
			w.serveLocked(now) // it may have been the last shard, whose end others wait for
		}
		w.mu.Unlock()
		return l, err
	}
	x := w.awaitLocked(now, rd, r)
	w.mu.Unlock()

	timeout := time.NewTimer(r.Wait)
	defer timeout.Stop()
	select {
	case o := <-x.got:
		return o.lease, o.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-timeout.C:
		err = nil
	}
	return w.giveUp(x, err)
}

// disownLocked returns the recovered leases of a reader that does not know of them: it was killed,
// or never received the response with the lease. Otherwise the shard, and with it the end of the
// epoch, would wait for Config.Reattach.
func (w *Window) disownLocked(now time.Time, rd *reader) {
	for _, l := range w.leases.byID {
		if l.found && l.reader == rd {
			w.returnLocked(now, l, "its reader did not receive it", noBlame)
		}
	}
}

// grantLocked is Lease without the wait.
func (w *Window) grantLocked(now time.Time, rd *reader, r LeaseRequest) (Lease, error) {
	if w.life.failed != nil {
		return Lease{}, w.life.failed
	}
	if over, ended := w.endForLocked(rd); ended {
		return Lease{}, over
	}
	if w.life.ended != nil {
		return Lease{}, w.life.ended
	}
	group, err := w.groupOf(r)
	if err != nil {
		return Lease{}, err
	}
	e := w.nextLeaseLocked(now, group)
	if e == nil {
		// Checking the files may have finished the rest of the epoch.
		if over, ended := w.endForLocked(rd); ended {
			return Lease{}, over
		}
		if r.EndEarly && rd.epoch <= w.progress.low.epoch && !w.heldEndLocked(w.progress.low.epoch) && w.restHeldLocked(group) {
			rd.epoch = w.progress.low.epoch + 1
			w.recordReaderLocked(rd)
			return Lease{}, &EndError{Epoch: w.progress.low.epoch, Early: true}
		}
		return Lease{}, &WaitError{w.causeLocked(now)}
	}
	l := &lease{reader: rd, e: e, group: group, bound: r.Bound}
	w.leases.issue(l)
	if !r.Bound {
		w.deadlineLocked(l, now.Add(w.cfg.LeaseTimeout))
	}
	if w.shares.broadcast() {
		err = w.journal.add("share", l.id, rd.name, e.seq, group)
		w.takeShareLocked(e, l)
	} else {
		err = w.journal.add("lease", l.id, rd.name, e.seq)
		w.deliverLocked(e, l, "leased by "+rd.name)
	}
	w.deliveries.course.mixed = w.deliveries.course.mixed || r.Mixes
	if err != nil {
		w.troubleLocked("cannot write the journal", err) // after a kill the shard is redelivered
	}
	return w.leaseOf(l), nil
}

func (w *Window) leaseOf(l *lease) Lease {
	e := l.e
	attempt := w.deliveries.history[e.seq].attempts
	if w.shares.broadcast() {
		attempt = e.shares()[l.group].attempts
	}
	return Lease{
		ID: l.id, Reader: l.reader.name, Epoch: e.epoch, Pos: e.pos, Path: w.path(e.name), Name: e.itemName(), Tree: e.tree,
		Size: e.size, Samples: w.samples(e.seq, e.samples), Digest: e.digest, Attempt: attempt, Skip: w.deliveries.history[e.seq].used,
	}
}

// popLocked removes the lowest shard that can be leased from the heap and returns it, or nil.
func (w *Window) popLocked(now time.Time) *entry {
	for e := w.offers.first(); e != nil; e = w.offers.first() {
		if e.epoch > w.progress.low.epoch || !w.cfg.AnyOrder && !w.dueLocked(e) {
			return nil
		}
		w.offers.pop()
		if st, err := w.stage.ready.Stat(e.name); err == nil && st.Ino == e.ino {
			return e
		}
		w.findLocked(now, e, nil) // a reader was faster, through the file protocol
	}
	return nil
}

// dueLocked reports whether every position before a file has been delivered or is finished.
func (w *Window) dueLocked(e *entry) bool {
	return w.progress.isDue(e.seq, w.entries.leased)
}

// deliverLocked delivers a Ready file to a reader.
func (w *Window) deliverLocked(e *entry, l *lease, why string) {
	e.lease = l
	w.givenLocked(l, w.deliveries.attempt(e.seq))
	w.moveLocked(e, Leased, why)
}

// givenLocked counts the nth delivery of a shard to a reader.
func (w *Window) givenLocked(l *lease, attempts int) {
	w.deliveries.deliver(l, attempts)
	l.reader.held++
	l.reader.given++
	l.since = time.Now()
}

// dropLeaseLocked ends a lease; the caller moves the entry.
func (w *Window) dropLeaseLocked(e *entry) {
	if e.shares() != nil {
		w.endSharesLocked(e)
	}
	w.leases.end(e.lease)
	e.lease.reader.held--
	e.lease = nil
}

// Ack acknowledges a shard. Acknowledging it again is not an error.
func (w *Window) Ack(id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leases.acked.has(id) {
		return nil
	}
	l, err := w.heldLocked(id)
	if err != nil {
		return err
	}
	if w.shares.broadcast() {
		return w.ackShareLocked(l)
	}
	w.reportLocked(l.e, Delivery{})
	if err := w.journal.add("ack", l.e.seq, id); err != nil {
		// The disk state is as good as a journal record: a file with a link in held/ but no visible
		// name counts as acknowledged.
		if rerr := w.stage.hide(w.stage.ready, l.e.name, l.e.ino); rerr != nil {
			return fmt.Errorf("acknowledge %s: %w; try again", l.e.name, err)
		}
		w.troubleLocked("cannot write the journal", err)
	}
	w.leases.acked.add(id)
	l.reader.seen = time.Now()
	w.ackLocked(l.e, "acknowledged by "+l.reader.name)
	return nil
}

// Nack reports that the reader cannot use the shard. The shard goes to another reader. After three
// refusals or deaths it is quarantined.
func (w *Window) Nack(id, reason string) error {
	if reason == "" {
		reason = "no reason given"
	}
	return w.giveBack(id, readerRefused, func(rd *reader) string {
		rd.nacks++
		why := fmt.Sprintf("rejected by %s: %s", rd.name, reason)
		if rd.nacks == rd.given {
			why += fmt.Sprintf(". It rejected every shard that it received (%d): check this reader first", rd.given)
		}
		return why
	})
}

// Return ends a lease whose reader has died or has disconnected. It counts like a Nack, because the
// shard may be what kills its readers. Deaths less than half a minute apart probably have one
// cause, and count once.
func (w *Window) Return(id string) error {
	return w.giveBack(id, readerDied, func(rd *reader) string { return rd.name + " disconnected" })
}

func (w *Window) giveBack(id string, against blame, why func(*reader) string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, err := w.heldLocked(id)
	if err != nil {
		return err
	}
	now := time.Now()
	w.returnLocked(now, l, why(l.reader), against)
	w.serveLocked(now)
	return nil
}

// PutBack ends a lease that its reader no longer needs. The shard goes to another reader, and
// nothing counts against it.
func (w *Window) PutBack(id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, err := w.heldLocked(id)
	if err == nil {
		now := time.Now()
		w.returnLocked(now, l, "put back by "+l.reader.name, noBlame)
		w.serveLocked(now)
	}
	return err
}

// Renew resets a lease's timeout.
func (w *Window) Renew(id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, err := w.heldLocked(id)
	if err == nil && !l.bound {
		l.found = false
		w.deadlineLocked(l, time.Now().Add(w.cfg.LeaseTimeout))
	}
	return err
}

// Attach adopts a lease after a restart of stager or a lost connection. bound sets whether the
// lease is bound to the new connection or expires.
func (w *Window) Attach(id string, bound bool) (Lease, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, err := w.heldLocked(id)
	if err != nil {
		return Lease{}, err
	}
	l.bound, l.found, l.deadline = bound, false, time.Time{}
	if !bound {
		w.deadlineLocked(l, time.Now().Add(w.cfg.LeaseTimeout))
	}
	return w.leaseOf(l), nil
}

// heldLocked returns the lease with that id, or ErrNoLease or ErrClosed.
func (w *Window) heldLocked(id string) (*lease, error) {
	switch {
	case errors.Is(w.life.failed, ErrRewound):
		return nil, ErrNoLease
	case w.life.closed:
		return nil, ErrClosed
	}
	if l := w.leases.byID[id]; l != nil {
		return l, nil
	}
	return nil, ErrNoLease
}

// returnLocked makes a leased file Ready again, or quarantines it if it has failed too often.
func (w *Window) returnLocked(now time.Time, l *lease, why string, against blame) {
	e := l.e
	h, counts := w.deliveries.blame(now, e.seq, against)
	for _, err := range []error{w.journal.add("gone", l.id, e.seq), w.journal.add("try", e.seq, h.attempts, h.failures, h.used)} {
		if err != nil {
			w.troubleLocked("cannot write the journal", err) // after a kill the lease is recovered and expires later
		}
	}
	if counts && h.failures >= failuresOfPoison {
		w.quarantineLocked(e, fmt.Sprintf("readers rejected it or died %d times, last: %s", h.failures, why), nil)
		return
	}
	if w.shares.broadcast() {
		w.endShareLocked(l)
		w.note()
		return
	}
	w.dropLeaseLocked(e)
	w.moveLocked(e, Ready, why)
	w.offerLocked(e)
	w.note()
}

// deadlineLocked sets when a lease expires.
func (w *Window) deadlineLocked(l *lease, at time.Time) {
	if w.leases.expire(l, at) {
		w.note()
	}
}

// expireLocked ends the expired leases.
func (w *Window) expireLocked(now time.Time) {
	for _, l := range w.leases.expired(now) {
		if w.leases.byID[l.id] != l {
			continue // it ended together with the lease of another group
		}
		against := readerDied
		if l.found {
			against = noBlame // after a restart the reader may be silent for another reason
		}
		w.returnLocked(now, l, "lease expired", against)
	}
}

package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// Scan intervals of Run, and backoff after a store error.
const (
	longestPause = 5 * time.Second // between two scans of a small directory
	firstRetry   = 5 * time.Second
	longestRetry = time.Minute
)

// openRetry is the time until the next scan of a checkpoint that lacks only the end of a writer. It
// doubles each time. The kernel reports that a file was closed before it ends the access of the
// writer, and reports nothing later.
const openRetry = 50 * time.Millisecond

// Run saves the output until ctx is cancelled, which is not an error. It scans the directory
// every few seconds, and immediately when an entry appears or disappears. It retries store errors
// indefinitely.
func (u *Uploader) Run(ctx context.Context) error {
	hints, stop := u.watch()
	defer stop()
	u.run(ctx, hints)
	return nil
}

// watch reports new entries and closed files. Run also works without it, by scanning.
func (u *Uploader) watch() (hints <-chan struct{}, stop func()) {
	hint, ended := make(chan struct{}, 1), make(chan struct{})
	w, err := newDirWatch(u, hint)
	if err != nil {
		u.log.Info("the kernel does not report changes here, so they are noticed a few seconds later", "error", err)
		u.positions.poll()
		return nil, func() {}
	}
	w.rescan()
	go func() {
		defer close(ended)
		w.run()
	}()
	return hint, func() {
		_ = w.file.Close() // nobody reads from it any more
		<-ended
	}
}

// run scans and wakes the sender. They are separate goroutines, because a long upload must not
// delay a snapshot.
func (u *Uploader) run(ctx context.Context, hints <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		u.sendOn(ctx)
	}()
	defer func() { <-ended }()
	var budget scanBudget
	for {
		err, start := error(nil), time.Now()
		cpu := cpuOf(func() { err = u.scan(false) })
		cpu = max(0, min(cpu, time.Since(start)-time.Duration(u.holding.Load()))) // without that of copies
		if err != nil {
			u.log.Warn("cannot scan the output", "error", err)
			_ = u.note(err)
		}
		u.wakeSender()
		next := budget.spend(cpu, time.Now())
		wait := min(u.cfg.QuietPeriod/4, longestPause, u.soonest())
		if err == nil && u.relist() {
			wait = 0
		}
		timer := time.NewTimer(max(wait, time.Until(next)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-hints:
		case <-u.rescan:
		case <-timer.C:
			continue
		}
		timer.Stop()
		if pause(ctx, time.Until(next)) != nil {
			return
		}
	}
}

// soonest returns the time until the first checkpoint may be complete without a change, if known.
func (u *Uploader) soonest() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	soonest := longestPause
	for _, e := range u.seen {
		if e.wait > 0 {
			soonest = min(soonest, e.wait+time.Millisecond)
		}
	}
	return soonest
}

// pause waits for d. It returns the cause when ctx is cancelled first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// wakeSender makes Run send what is due.
func (u *Uploader) wakeSender() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// scanAgain makes Run scan soon.
func (u *Uploader) scanAgain() {
	select {
	case u.rescan <- struct{}{}:
	default:
	}
}

// relist is relistLocked with the lock.
func (u *Uploader) relist() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.relistLocked()
}

// sendOn sends whenever it is woken. After a store error it waits before the next attempt.
func (u *Uploader) sendOn(ctx context.Context) {
	retry := firstRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-u.wake:
		}
		err := u.send(ctx, false)
		if err == nil || backends.KindOf(err) == backends.Canceled {
			retry = firstRetry
			continue
		}
		u.log.Warn("cannot save the output, trying again", "error", err, "pause", retry)
		if pause(ctx, retry) != nil {
			return
		}
		retry = min(2*retry, longestRetry)
	}
}

// Exit describes how the trainer ended.
type Exit struct {
	Success bool
	// Gone reports that the trainer's processes have exited, as known by the process that started
	// them. If it is unknown, a trainer may be between two files of a checkpoint.
	Gone bool
}

// Drain saves everything within ctx's deadline: the newest complete checkpoint first, plain files
// last, including files that are still open for writing. It waits for checkpoints that are not
// complete yet. If the trainer is Gone with Success, all files that nobody has open are complete
// at once. The error lists the complete checkpoints that are not in the store.
//
// Drain may be called while Run runs, and more than once.
func (u *Uploader) Drain(ctx context.Context, exit Exit) error {
	u.ending.Store(true)
	when := u.cfg.When
	final := when.Change || when.Exit || when.Success && exit.Success || when.Failure && !exit.Success
	retry := firstRetry / 5
	reported, quiet, cleaning, finals := false, time.Duration(0), time.Time{}, 0
	for {
		for range 2 { // the second confirms the order of what the first found
			if err := u.scan(exit.Gone && exit.Success); err != nil {
				return u.note(err)
			}
			if !u.relist() {
				break
			}
		}
		if !reported {
			reported = true
			u.forecast(ctx)
		}
		u.preempt()
		err := u.send(ctx, final)
		wait := retry
		if hopeless(err) {
			return u.unsaved(err, final)
		}
		if err != nil {
			retry = min(2*retry, longestRetry)
		} else if wait = u.unsettled(); !final || wait == 0 {
			if wait = u.linger(&quiet); !final || wait == 0 {
				if own := len(u.ownDirs()); own != finals && exit.Gone && exit.Success && u.member == nil && u.cfg.Mode == ModeCheckpoint {
					finals = own
					u.becomeFinal(ctx)
				}
				if u.waitsForCleanup(ctx, exit, &cleaning) {
					continue
				}
				return u.unsaved(nil, final)
			}
		} else {
			quiet = 0
		}
		if cut := pause(ctx, wait); cut != nil {
			return u.unsaved(errors.Join(err, cut), final)
		}
	}
}

// linger returns how long a node of a job should wait that never had files of a checkpoint, or
// that holds one which the trainer removed. Another node may be about to announce a checkpoint,
// and needs the part of this one.
func (u *Uploader) linger(quiet *time.Duration) time.Duration {
	m := u.member
	if m == nil || !m.is(memberRegistered) || *quiet >= min(u.cfg.QuietPeriod, DefaultQuietPeriod)+5*time.Second {
		return 0
	}
	if m.resolve("") == "" || m.writes() && !u.awaits() {
		return 0
	}
	m.post(group.Event{What: group.Expect})
	*quiet += time.Second
	return time.Second
}

// hopeless reports whether a store error is permanent, so that Drain should not spend its grace
// period on retries.
func hopeless(err error) bool {
	var e *backends.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Kind {
	case backends.Permission, backends.Invalid, backends.NotExist, backends.Unsupported:
		return true
	}
	return false
}

// preempt cancels an upload when a newer checkpoint is waiting. A later attempt reuses what it
// sent.
func (u *Uploader) preempt() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if up := u.sending.now; up != nil && u.waitsNewerLocked(up.snap) {
		u.log.Info("interrupting an upload for a newer checkpoint", "step", up.snap.Step)
		up.cancel()
	}
}

// waitsNewerLocked reports whether a snapshot that was complete later than snap waits to be sent.
func (u *Uploader) waitsNewerLocked(snap *snapshot) bool {
	steps := u.pendingLocked()
	return len(steps) > 0 && newerFirst(u.snaps[steps[0]], snap) < 0
}

// unsettled returns how long to wait for checkpoints that may still become complete. It returns 0
// when there are none.
func (u *Uploader) unsettled() (pause time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.member != nil && (len(u.pendingLocked()) > 0 || u.member.busy()) {
		pause = time.Second
	}
	for _, e := range u.seen {
		if e.refused {
			continue
		}
		left := max(u.cfg.QuietPeriod-time.Since(e.since), time.Second/10)
		if e.wait > 0 {
			left = max(e.wait, time.Second/10)
		}
		if pause == 0 || left < pause {
			pause = left
		}
	}
	return pause
}

// unsaved returns the error of Drain: the cause of an interruption, and what is not in the store.
func (u *Uploader) unsaved(cut error, final bool) error {
	u.loseRemoved()
	u.mu.Lock()
	defer u.mu.Unlock()
	var errs []error
	for _, step := range u.pendingLocked() {
		if snap := u.snaps[step]; final || snap.Committed {
			errs = append(errs, fmt.Errorf("step %d (%s) is not safe: it is held in %s/%s", step, snap.Name, u.cfg.Dir, u.snapshots.dir(snap)))
		}
	}
	for _, step := range slices.Sorted(maps.Keys(u.snaps)) {
		if snap := u.snaps[step]; snap.refused != nil && !u.overtakenLocked(step, snap.abandoned) {
			errs = append(errs, fmt.Errorf("step %d (%s) is not safe, and is held in %s/%s: %w", step, snap.Name, u.cfg.Dir, u.snapshots.dir(snap), snap.refused))
		}
	}
	for name, f := range u.failed {
		if u.overtakenLocked(f.step, f.abandoned) {
			continue
		}
		errs = append(errs, fmt.Errorf("step %d (%s) is not safe: %s", f.step, name, f.reason))
	}
	for name, e := range u.seen {
		switch {
		case e.fault:
			errs = append(errs, fmt.Errorf("%s is not safe: %s", name, e.reason))
		case e.reason != "":
			u.log.Warn("not saved, because it is not a complete checkpoint", "name", name, "reason", e.reason)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(u.halfWritten)) {
		u.log.Warn("not saved, because it is not a complete checkpoint", "name", name, "reason", halfWritten)
	}
	if final {
		logOmitted(u.log, nil, u.plain.withoutContent())
		errs = append(errs, omittedErr(u.plain.notSaved()))
	}
	return errors.Join(append(errs, cut)...)
}

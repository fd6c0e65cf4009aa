package checkpoint

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
)

// Retention and sweeps run beside the sender, in a goroutine that lives as long as there is
// something to clean up. A store that lists or deletes slowly must not delay a checkpoint.
//
// To the sender, the cleanup is like the retention of another process, against which every upload
// is protected: see reuse.go, removal.go and deliver.go. What it knows in addition about this
// process stays valid meanwhile:
//
//   - It removes neither the COMMIT nor data of a step that this process is saving, which includes
//     the time between the COMMIT and its entry in Uploader.own; see savesLocked.
//   - The ids of its uploads that are over are those known when it began, without the ones that may
//     still be committed. None of them is used again once its snapshot is gone. An upload that is
//     committed meanwhile may be replaced meanwhile, and a later step may refer to its data: what was
//     listed before says nothing about it.
//   - Both change the COMMIT of a step only with that step's lock; see lockCommit.

const (
	// cleanupRetryFor is how long a request of the cleanup is tried again. The next commit repeats
	// what failed.
	cleanupRetryFor = 5 * time.Second
	// cleanupWidth is the maximum number of removals at once.
	cleanupWidth = 8
	// cleanupYield is the longest time for which a request of the cleanup waits for an upload.
	cleanupYield = time.Minute
	// cleanupAtEnd is the longest time for which Drain waits for the cleanup.
	cleanupAtEnd = time.Minute
)

// cleanup is what is to be cleaned up. Uploader.mu guards it.
type cleanup struct {
	cancel context.CancelFunc // nil: not running
	ended  chan struct{}      // closed when the goroutine ends
	closed bool
	retain bool
	sweep  bool
	drop   bool
	// mirrored are the ids of incomplete uploads of mirrored files that nobody resumes.
	mirrored []string
	// left is what uploads of this process left. The rest is also found without it, when it is old.
	left []leftover
}

// leftover is data in the directory of a step that nothing needs, unless a COMMIT names it.
type leftover struct {
	dir    string
	step   int64
	id     string  // of an upload that was given up; "": none
	commit *Commit // that was replaced; nil: none
}

// cleanLater lets the cleanup run, with what add adds to it.
func (u *Uploader) cleanLater(add func(c *cleanup)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c := &u.cleanup
	add(c)
	if c.closed || c.cancel != nil || !c.isDue() {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel, c.ended = cancel, make(chan struct{})
	go u.clean(ctx, c.ended)
}

func (c *cleanup) isDue() bool { return c.retain || c.sweep || c.drop && len(c.left) > 0 }

// clean cleans up until nothing is left to do.
func (u *Uploader) clean(ctx context.Context, ended chan<- struct{}) {
	defer close(ended)
	for {
		u.mu.Lock()
		c := &u.cleanup
		if ctx.Err() != nil || !c.isDue() {
			c.cancel()
			c.cancel = nil
			u.mu.Unlock()
			return
		}
		retain, sweep := c.retain, c.sweep
		c.retain, c.sweep, c.drop = false, false, false
		u.mu.Unlock()
		u.dropLeft(ctx)
		if retain {
			u.retain(ctx)
		}
		if sweep {
			u.sweepOnce(ctx)
		}
		if ctx.Err() != nil { // for endCleanup
			u.mu.Lock()
			c.retain, c.sweep = c.retain || retain, c.sweep || sweep
			u.mu.Unlock()
		}
	}
}

// cleaned waits until nothing is left to clean up, or ctx is done. It reports whether nothing is.
func (u *Uploader) cleaned(ctx context.Context) bool {
	u.mu.Lock()
	running, ended := u.cleanup.cancel != nil, u.cleanup.ended
	u.mu.Unlock()
	if !running {
		return true
	}
	select {
	case <-ended:
		return true
	case <-ctx.Done():
		return false
	}
}

// endCleanup stops the cleanup, and logs what it did not do.
func (u *Uploader) endCleanup() {
	u.mu.Lock()
	c := &u.cleanup
	c.closed = true
	cancel, ended := c.cancel, c.ended
	if cancel != nil {
		cancel()
	}
	u.mu.Unlock()
	if cancel == nil {
		return
	}
	<-ended
	u.mu.Lock()
	defer u.mu.Unlock()
	if c.isDue() {
		u.log.Warn("older steps and data of killed uploads are not all removed: a later commit removes them, and so does stager prune")
	}
}

// waitsForCleanup reports whether Drain, which has saved everything, should look for checkpoints
// again and then wait longer for the cleanup. until is zero at first. Drain waits for up to half of
// the time that is left. While the trainer still runs, it looks every second.
func (u *Uploader) waitsForCleanup(ctx context.Context, exit Exit, until *time.Time) bool {
	if until.IsZero() {
		left := cleanupAtEnd
		if deadline, ok := ctx.Deadline(); ok {
			left = min(left, time.Until(deadline)/2)
		}
		*until = time.Now().Add(left)
	}
	left := time.Until(*until)
	if left <= 0 {
		return false
	}
	if !exit.Gone {
		left = min(left, time.Second)
	}
	within, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	return !u.cleaned(within) && !exit.Gone && ctx.Err() == nil
}

// cleanupParallel returns how many objects the cleanup removes at once: few enough to leave an
// upload most of the concurrent requests.
func (u *Uploader) cleanupParallel() int {
	return min(max(u.cleans.Connections()/4, 1), cleanupWidth)
}

// yieldToUpload waits while a checkpoint is being uploaded that needs all requests: the store
// allows only one at a time, or the process is about to end.
func (u *Uploader) yieldToUpload(ctx context.Context) error {
	timeout := time.NewTimer(cleanupYield)
	defer timeout.Stop()
	for {
		u.mu.Lock()
		waits, changed := u.uploading != nil, u.changed
		u.mu.Unlock()
		if !waits || !u.ending.Load() && u.cleans.Connections() > 1 {
			return nil
		}
		select {
		case <-changed:
		case <-timeout.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// retain removes old steps and the orphans of killed uploads. After an error, the next commit
// retries it.
func (u *Uploader) retain(ctx context.Context) {
	u.mu.Lock()
	ids, left := u.overLocked(), slices.Clone(u.cleanup.left)
	u.mu.Unlock()
	if u.member != nil {
		ids = nil // another node may commit what this one sent
	}
	r := u.retention(ids)
	r.keep, r.own, r.committing, r.read = u.cfg.Keep, u.ownDirs, u.commits, u.read
	spared, busy := make(map[int64]bool), r.busy
	r.busy = func(step int64) bool {
		spared[step] = spared[step] || busy(step)
		return spared[step]
	}
	r.kept = func(steps []good) {
		u.finalize(ctx, slices.DeleteFunc(slices.Clone(steps), func(g good) bool { return r.busy(g.commit.Step) }), false)
	}
	if r.nodes = time.Since(u.nodesSwept) >= sweepNodesEvery; r.nodes {
		u.nodesSwept = time.Now()
	}
	for _, l := range left {
		if l.commit != nil {
			r.finish(l.dir, l.commit)
		}
	}
	newest, err := r.apply(ctx)
	if err != nil {
		if ctx.Err() == nil {
			u.log.Warn("cannot remove older steps now", "error", err)
		}
		return
	}
	u.sweepOrphans(ctx, r, "step-")
	u.mu.Lock()
	defer u.mu.Unlock()
	u.cleanup.left = slices.DeleteFunc(u.cleanup.left, func(l leftover) bool {
		return l.commit != nil && slices.Contains(left, l) && !spared[l.step]
	})
	if newest > u.committed.Step && u.upTo.IsZero() {
		u.committed = StepTime{Step: newest}
	}
}

// retention returns a retention that skips steps which this process is saving.
func (u *Uploader) retention(ids map[string]bool) *retention {
	return &retention{
		store: u.cleans.After(u.yieldToUpload), urgent: u.cleans, ids: ids, abandoned: Abandoned, log: u.log, alive: make(map[string]bool),
		busy: func(step int64) bool {
			u.mu.Lock()
			defer u.mu.Unlock()
			return !weaken.cleanSaved && u.snaps[step] != nil || u.savesLocked(step)
		},
		lock: u.lockUnsaved, width: u.cleanupParallel(),
	}
}

// overLocked returns the ids of this directory's uploads that will not be committed any more, or are.
func (u *Uploader) overLocked() map[string]bool {
	ids := u.idsLocked()
	for _, snap := range u.snaps {
		if !weaken.cleanHeld {
			delete(ids, snap.ID)
		}
	}
	return ids
}

// ownDirs returns the directories that this process committed, oldest first.
func (u *Uploader) ownDirs() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.own)
}

// dropLeft removes uploads of this process that will not be committed. Those of a step that is
// being saved stay for now: the same upload may be sent there again.
func (u *Uploader) dropLeft(ctx context.Context) {
	u.mu.Lock()
	left := slices.Clone(u.cleanup.left)
	u.mu.Unlock()
	for _, l := range left {
		r := u.retention(map[string]bool{l.id: true})
		if l.id == "" || r.busy(l.step) {
			continue
		}
		if err := r.drop(ctx, l.dir, l.id); err != nil {
			if ctx.Err() != nil {
				return
			}
			u.log.Warn("cannot remove unreferenced data", "step", l.dir, "upload", l.id, "error", err)
		}
		u.mu.Lock()
		u.cleanup.left = slices.DeleteFunc(u.cleanup.left, func(other leftover) bool { return other == l })
		u.mu.Unlock()
	}
}

// commits is savesLocked with the lock.
func (u *Uploader) commits(step int64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.savesLocked(step)
}

// savesLocked reports whether this process may be about to commit a step, or has committed it and
// not entered it in own.
func (u *Uploader) savesLocked(step int64) bool {
	if weaken.cleanSaved {
		return false
	}
	if snap := u.snaps[step]; snap != nil && snap.refused == nil {
		return true
	}
	return u.member != nil && u.member.saves(step)
}

// stepLocks are the steps whose COMMIT this process changes now. Uploader.mu guards it.
type stepLocks map[int64]chan struct{}

// lockCommit waits until this process changes the COMMIT of a step nowhere else. The caller must
// call unlock.
//
// Stores without conditional writes need the lock, and all stores do for a removal: otherwise the
// COMMIT that is removed may be one that the sender wrote after retention had looked.
func (u *Uploader) lockCommit(ctx context.Context, step int64) (unlock func(), err error) {
	for {
		u.mu.Lock()
		held := u.locks[step]
		if held == nil {
			unlock := u.lockLocked(step)
			u.mu.Unlock()
			return unlock, nil
		}
		u.mu.Unlock()
		select {
		case <-held:
		case <-ctx.Done():
			return nil, &backends.Error{Op: "commit", Key: stepDir(step, 0), Kind: backends.Canceled, Err: context.Cause(ctx)}
		}
	}
}

// lockUnsaved is like lockCommit, and fails if this process is saving the step.
func (u *Uploader) lockUnsaved(ctx context.Context, step int64) (unlock func(), ok bool) {
	unlock, err := u.lockCommit(ctx, step)
	if err != nil {
		return nil, false
	}
	if u.commits(step) {
		unlock()
		return nil, false
	}
	return unlock, true
}

// lockLocked takes the lock of a step that is free.
func (u *Uploader) lockLocked(step int64) (unlock func()) {
	if weaken.unlocked {
		return func() {}
	}
	done := make(chan struct{})
	u.locks[step] = done
	return sync.OnceFunc(func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.locks, step)
		close(done)
	})
}

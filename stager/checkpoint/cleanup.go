package checkpoint

import (
	"context"
	"log/slog"
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
//   - Both change the COMMIT of a step only with that step's lock; see stepLocks.

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

// cleanup is what is to be cleaned up, and what is known of the destination for it.
type cleanup struct {
	store *backends.Store // the destination, with requests that are given up soon

	// The goroutine uses these alone.
	read       map[string]readOnce // COMMITs
	nodesSwept time.Time           // last sweep of records of former nodes

	mu     sync.Mutex         // guards all below; a leaf
	cancel context.CancelFunc // nil: not running
	ended  chan struct{}      // closed when the goroutine ends
	closed bool
	retain bool
	sweep  bool
	drop   bool
	swept  bool // the destination was swept for orphans
	blind  bool // it cannot be swept
	// mirrored are the ids of incomplete uploads of mirrored files that nobody resumes.
	mirrored []string
	// left is what uploads of this process left. The rest is also found without it, when it is old.
	left []leftover
}

func newCleanup(store *backends.Store) *cleanup {
	return &cleanup{store: store.Impatient(cleanupRetryFor), read: make(map[string]readOnce)}
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
	c := u.cleanup
	c.mu.Lock()
	defer c.mu.Unlock()
	add(c)
	if c.closed || c.cancel != nil || !c.isDueLocked() {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel, c.ended = cancel, make(chan struct{})
	go u.clean(ctx, c.ended)
}

func (c *cleanup) isDueLocked() bool { return c.retain || c.sweep || c.drop && len(c.left) > 0 }

// clean cleans up until nothing is left to do.
func (u *Uploader) clean(ctx context.Context, ended chan<- struct{}) {
	defer close(ended)
	c := u.cleanup
	for {
		retain, sweep, ok := c.next(ctx)
		if !ok {
			return
		}
		u.dropLeft(ctx)
		if retain {
			u.retain(ctx)
		}
		if sweep {
			u.sweepOnce(ctx)
		}
		if ctx.Err() != nil { // for end
			c.mu.Lock()
			c.retain, c.sweep = c.retain || retain, c.sweep || sweep
			c.mu.Unlock()
		}
	}
}

// next returns what is to be done now, or ends the run of the cleanup if there is nothing.
func (c *cleanup) next(ctx context.Context) (retain, sweep, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil || !c.isDueLocked() {
		c.cancel()
		c.cancel = nil
		return false, false, false
	}
	retain, sweep = c.retain, c.sweep
	c.retain, c.sweep, c.drop = false, false, false
	return retain, sweep, true
}

// wait waits until nothing is left to clean up, or ctx is done. It reports whether nothing is.
func (c *cleanup) wait(ctx context.Context) bool {
	c.mu.Lock()
	running, ended := c.cancel != nil, c.ended
	c.mu.Unlock()
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

// end stops the cleanup, and logs what it did not do.
func (c *cleanup) end(log *slog.Logger) {
	c.mu.Lock()
	c.closed = true
	cancel, ended := c.cancel, c.ended
	if cancel != nil {
		cancel()
	}
	c.mu.Unlock()
	if cancel == nil {
		return
	}
	<-ended
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isDueLocked() {
		log.Warn("older steps and data of killed uploads are not all removed: a later commit removes them, and so does stager prune")
	}
}

// allLeft returns what uploads of this process left.
func (c *cleanup) allLeft() []leftover {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.left)
}

// forget removes from left what is done.
func (c *cleanup) forget(done func(l leftover) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = slices.DeleteFunc(c.left, done)
}

// isBlind reports whether the destination cannot be swept.
func (c *cleanup) isBlind() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blind
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
	return !u.cleanup.wait(within) && !exit.Gone && ctx.Err() == nil
}

// cleanupParallel returns how many objects the cleanup removes at once: few enough to leave an
// upload most of the concurrent requests.
func (u *Uploader) cleanupParallel() int {
	return min(max(u.cleanup.store.Connections()/4, 1), cleanupWidth)
}

// yieldToUpload waits while a checkpoint is being uploaded that needs all requests: the store
// allows only one at a time, or the process is about to end.
func (u *Uploader) yieldToUpload(ctx context.Context) error {
	timeout := time.NewTimer(cleanupYield)
	defer timeout.Stop()
	for {
		u.mu.Lock()
		waits, changed := u.sending.now != nil, u.changed
		u.mu.Unlock()
		if !waits || !u.ending.Load() && u.cleanup.store.Connections() > 1 {
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
	c, left := u.cleanup, u.cleanup.allLeft()
	u.mu.Lock()
	ids := u.overLocked()
	u.mu.Unlock()
	if u.member != nil {
		ids = nil // another node may commit what this one sent
	}
	r := u.retention(ids)
	r.keep, r.own, r.committing, r.read = u.cfg.Keep, u.ownDirs, u.commits, c.read
	spared, busy := make(map[int64]bool), r.busy
	r.busy = func(step int64) bool {
		spared[step] = spared[step] || busy(step)
		return spared[step]
	}
	r.kept = func(steps []good) {
		u.finalize(ctx, slices.DeleteFunc(slices.Clone(steps), func(g good) bool { return r.busy(g.commit.Step) }), false)
	}
	if r.nodes = time.Since(c.nodesSwept) >= sweepNodesEvery; r.nodes {
		c.nodesSwept = time.Now()
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
	c.forget(func(l leftover) bool { return l.commit != nil && slices.Contains(left, l) && !spared[l.step] })
	u.mu.Lock()
	defer u.mu.Unlock()
	u.results.isFound(newest)
}

// retention returns a retention that skips steps which this process is saving.
func (u *Uploader) retention(ids map[string]bool) *retention {
	return &retention{
		store: u.cleanup.store.After(u.yieldToUpload), urgent: u.cleanup.store, ids: ids, abandoned: Abandoned, log: u.log, alive: make(map[string]bool),
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
	return slices.Clone(u.own.dirs)
}

// dropLeft removes uploads of this process that will not be committed. Those of a step that is
// being saved stay for now: the same upload may be sent there again.
func (u *Uploader) dropLeft(ctx context.Context) {
	for _, l := range u.cleanup.allLeft() {
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
		u.cleanup.forget(func(other leftover) bool { return other == l })
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

// lockUnsaved is like stepLocks.lock, and fails if this process is saving the step.
func (u *Uploader) lockUnsaved(ctx context.Context, step int64) (unlock func(), ok bool) {
	unlock, err := u.locks.lock(ctx, step)
	if err != nil {
		return nil, false
	}
	if u.commits(step) {
		unlock()
		return nil, false
	}
	return unlock, true
}

package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stager-dev/stager/backends"
)

// Sync makes one pass: it finds complete checkpoints, takes snapshots, uploads and commits them
// newest first, removes old steps, and mirrors plain files that no longer change. Errors of
// single directories appear in the Status; the returned error is one of the store.
func (u *Uploader) Sync(ctx context.Context) error {
	if err := u.scan(false); err != nil {
		return u.note(err)
	}
	err := u.send(ctx, false)
	u.cleanup.wait(ctx)
	return err
}

// note records an error for the Status.
func (u *Uploader) note(err error) error {
	if err == nil || backends.KindOf(err) != backends.Canceled {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.lastError = ""
		if err != nil {
			u.lastError = err.Error()
		}
	}
	return err
}

// send does the part of a pass that needs the store. Only one send runs at a time. With final it
// sends everything, else what is due.
func (u *Uploader) send(ctx context.Context, final bool) error {
	select {
	case u.shipping <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-u.shipping }()
	u.mu.Lock()
	interval := u.cfg.When.Interval > 0 && time.Since(u.lastSent) >= u.cfg.When.Interval
	u.mu.Unlock()
	all := final || u.cfg.When.Change || interval
	var err error
	tried := make(map[*snapshot]bool)
	if u.member != nil {
		u.member.reportDue(all)
	}
	for err == nil && u.member == nil {
		snap := u.next(all, tried)
		if snap == nil {
			break
		}
		tried[snap] = true
		err = u.ship(ctx, snap)
	}
	if err == nil && all {
		err = u.plain.mirror(ctx, final)
	}
	if err == nil && !final {
		u.sweepLater()
	}
	u.cleanLater(func(c *cleanup) { c.drop = true })
	if err == nil && interval {
		u.mu.Lock()
		u.lastSent = time.Now()
		u.mu.Unlock()
	}
	return u.note(err)
}

// next returns the newest snapshot that is due and was not tried.
func (u *Uploader) next(all bool, tried map[*snapshot]bool) *snapshot {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, step := range u.pendingLocked() {
		if snap := u.snaps[step]; (all || snap.Committed) && !tried[snap] {
			return snap
		}
	}
	return nil
}

// ship uploads one snapshot and records the result. It returns an error when the result is still
// open because the store failed.
func (u *Uploader) ship(ctx context.Context, snap *snapshot) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	up := &upload{snap: snap, total: totalSize(snap.Files), start: time.Now(), cancel: cancel}
	gauge := u.cfg.Metrics.uploading.WithLabelValues(u.cfg.Output)
	gauge.Set(float64(up.total))
	defer gauge.Set(0)
	u.mu.Lock()
	u.sending.begin(up)
	u.mu.Unlock()

	commit, dir, err := u.shipSnapshot(ctx, up)
	u.mu.Lock()
	u.sending.end()
	u.notifyLocked()
	u.mu.Unlock()
	if err != nil {
		return u.shipFailed(snap, err)
	}
	u.log.Info(u.saveWord(commit.Provisional), "step", snap.Step, "directory", dir, "files", len(commit.Files), "bytes", commit.Bytes,
		"evidence", commit.Evidence, "provisional", commit.Provisional, "took", time.Since(up.start).Round(time.Millisecond))
	u.cfg.Metrics.countEvidence(u.cfg.Output, commit.Evidence)
	u.cfg.Metrics.bytes.WithLabelValues(u.cfg.Output).Add(float64(commit.Bytes))
	u.mu.Lock()
	u.own.add(dir, snap.Step, commit.Provisional)
	u.own.last = &earlier{dir: dir, commit: commit}
	u.results.isCommitted(snap, StepTime{snap.Step, time.Now().UTC(), commit.Evidence, commit.Provisional})
	delete(u.failed, snap.Name)
	done := shipment{Step: snap.Step, Fingerprint: snap.print, Dir: dir, Complete: snap.Complete, Provisional: commit.Provisional}
	if id := commit.id(); commit.Provisional || u.ownLocked()[id] {
		done.Upload, u.own.ids[snap.Step] = id, id
	}
	u.rememberLocked(snap.Name, done)
	u.leaveLocked(snap)
	pace := u.sending.last
	u.mu.Unlock()
	u.settle()
	u.keepPace(pace)
	u.cleanLater(func(c *cleanup) { c.retain = true })
	return nil
}

// saveWord counts a committed checkpoint and returns its log message. A provisional checkpoint is
// not safe: restore skips it while an older one has other files.
func (u *Uploader) saveWord(provisional bool) string {
	if provisional {
		u.cfg.Metrics.provisional.WithLabelValues(u.cfg.Output).Inc()
		return "a checkpoint is saved, provisional"
	}
	u.cfg.Metrics.committed.WithLabelValues(u.cfg.Output).Inc()
	return "a checkpoint is safe"
}

// givesWay reports whether files are read in the idle I/O class.
func (u *Uploader) givesWay() bool { return u.classes && !u.ending.Load() }

func (u *Uploader) shipSnapshot(ctx context.Context, up *upload) (Commit, string, error) {
	snap := up.snap
	t, err := u.snapshots.open(snap)
	if err != nil {
		return Commit{}, "", errors.Join(changed(snap.Name), err)
	}
	defer t.close()
	sent := u.snapshots.journal(snap)
	defer sent.close()
	u.mu.Lock()
	ids, last := u.ownLocked(), u.own.last
	u.mu.Unlock()
	s := &shipper{
		own: ids, store: u.cfg.Store, conflict: u.cfg.Conflict, attempt: u.cfg.Attempt, stager: u.cfg.Stager, log: u.log,
		moved: func(n int64) { up.done.Add(n) }, reused: func(n int64) { up.reused.Add(n) }, node: u.cfg.Node,
		recall: func(context.Context) *earlier { return last }, lock: u.locks.lock,
		leave: func(l leftover) { u.cleanLater(func(c *cleanup) { c.left = append(c.left, l) }) },
	}
	return s.ship(ctx, uploadJob{
		id: snap.ID, step: snap.Step, samples: snap.Samples, metrics: snap.Metrics, cursors: u.cursorsOf(up), tree: t, files: snap.held(), sent: sent,
		because: snap.Evidence, quiet: snap.Provisional, completed: snap.Complete,
		idle: u.givesWay,
	})
}

// shipFailed records the result for a snapshot that could not be committed.
func (u *Uploader) shipFailed(snap *snapshot, err error) error {
	kind := backends.KindOf(err)
	if kind == backends.Canceled {
		return err
	}
	u.cfg.Metrics.failures.WithLabelValues(u.cfg.Output).Inc()
	watched := u.watches(snap.Name)
	defer u.settle()
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case errors.Is(err, errChanged):
		u.log.Warn("a checkpoint was not committed, because it changed", "step", snap.Step, "error", err)
		if !watched {
			u.failed[snap.Name] = failure{step: snap.Step, print: snap.print, reason: err.Error() + "; commit it again when it is complete", kind: backends.Changed}
		} else if u.seen[snap.Name] == nil {
			// A scan must find it complete again.
			u.seen[snap.Name] = &entry{step: snap.Step, since: time.Now(), reason: err.Error()}
		}
	case errors.Is(err, errPartly) && !snap.Committed:
		u.log.Warn("a checkpoint was written again after it was saved, and the new files are not saved", "step", snap.Step, "checkpoint", snap.Name, "error", err)
		u.failed[snap.Name] = failure{step: snap.Step, print: snap.print, reason: err.Error(), kind: backends.Invalid, abandoned: snap.Complete}
	case errors.Is(err, errConflict), errors.As(err, new(*unholdableError)):
		u.log.Error("a checkpoint cannot be committed", "step", snap.Step, "error", err)
		if snap.Committed {
			// The user may have deleted the original after the commit, so this may be the only
			// copy.
			u.log.Warn("the checkpoint is held until the destination accepts it: fix the cause and restart stager, or copy the files from the directory",
				"step", snap.Step, "directory", u.cfg.Dir+"/"+u.snapshots.dir(snap))
			snap.refused = err
			u.notifyLocked()
			return nil
		}
		u.failed[snap.Name] = failure{step: snap.Step, print: snap.print, reason: err.Error(), kind: backends.Invalid}
	default:
		u.log.Warn("a checkpoint is not safe yet", "step", snap.Step, "error", err)
		return fmt.Errorf("step %d: %w", snap.Step, err)
	}
	u.leaveLocked(snap)
	return nil
}

// watches reports whether scan evaluates the entry with this name.
func (u *Uploader) watches(name string) bool {
	if strings.Contains(name, "/") || u.cfg.Mode != ModeCheckpoint || !present(u.root, name) {
		return false
	}
	info, err := u.root.Lstat(name)
	_, ok := stepOf(name, err != nil || info.IsDir()) // without its own entry it is a group
	return ok
}

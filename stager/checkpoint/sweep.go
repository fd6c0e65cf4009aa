package checkpoint

import (
	"bufio"
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/window/disk"
)

// Abandoned is the time without progress after which a write of an unknown owner counts as
// abandoned.
const Abandoned = 24 * time.Hour

// sweepOrphans removes incomplete uploads of killed processes below prefix, which List does not
// return. It removes those of r.ids at once, and others when nothing was added for long. A dry
// run only reports them. It keeps uploads of busy steps.
func (r *retention) sweepOrphans(ctx context.Context, prefix string) error {
	found, doubtful, again := make(map[string]backends.Orphan), false, false
	timed := !r.now.IsZero()
	isOver := func(left backends.Orphan) bool {
		if !provenOwn(left) && !r.recordedUpload(ctx, left) {
			return !again && r.foreignIsOver(left)
		}
		switch own := r.isOwn(left); {
		case !own && !r.isOver(left):
			return false
		case !own && !timed: // old by the local clock alone
			doubtful = true
			return false
		}
		found[left.Key] = left
		return !r.dry
	}
	over := func(left backends.Orphan) bool {
		remove := isOver(left)
		if !remove {
			r.keepRecords(left)
		}
		return remove
	}
	err := r.store.Sweep(ctx, prefix, over)
	if err == nil && doubtful {
		if err = r.askTime(ctx); err == nil && !r.now.IsZero() {
			timed, again = true, true
			err = r.store.Sweep(ctx, prefix, over)
		}
	}
	byDir := make(map[string]*Pruned)
	for _, left := range found {
		dir, _, _ := strings.Cut(left.Key, "/")
		step, _, ok := parseStepDir(dir)
		if !ok {
			dir, step = "", -1
		}
		if byDir[dir] == nil {
			byDir[dir] = &Pruned{Step: step, Dir: dir, Unfinished: true}
		}
		byDir[dir].Objects++
		byDir[dir].Bytes += left.Size
	}
	for _, p := range byDir {
		r.log.Info(r.removing("what is left of writes that never ended", "swept"), "step", p.Dir, "writes", p.Objects, "bytes", p.Bytes)
		r.removed = append(r.removed, *p)
	}
	return err
}

// listingDenied reports whether a sweep fails permanently: the credentials do not allow listing
// of incomplete uploads, or the store does not support it.
func listingDenied(err error) bool {
	kind := backends.KindOf(err)
	return err != nil && (kind == backends.Permission || kind == backends.Unsupported)
}

// isOver reports whether nobody resumes a write.
func (r *retention) isOver(left backends.Orphan) bool {
	dir, _, _ := strings.Cut(left.Key, "/")
	step, _, ok := parseStepDir(dir)
	switch {
	case !ok && left.Directory:
		return false // another program may own it
	case ok && r.busy != nil && r.busy(step):
		return false
	case r.isOwn(left):
		return true
	}
	return r.old(left.Touched)
}

// isOwn reports whether this process, or an earlier one, made a write, and does not upload its
// step now.
func (r *retention) isOwn(left backends.Orphan) bool {
	if left.ID != "" && r.ids[left.ID] {
		return true
	}
	dir, rest, _ := strings.Cut(left.Key, "/")
	step, _, ok := parseStepDir(dir)
	data, rest, _ := strings.Cut(rest, "/")
	id, _, _ := strings.Cut(rest, "/")
	return ok && data == dataDir && r.ids[id] && (r.busy == nil || !r.busy(step))
}

// uploadsName lists the ids of this directory's uploads, one per line. It identifies what a
// killed process left in the store.
const uploadsName = private + "/uploads"

// recallIDs reads what noteIDs wrote.
func recallIDs(root *os.Root) map[string]bool {
	ids := make(map[string]bool)
	file, err := disk.OpenFile(root, uploadsName, os.O_RDONLY, 0)
	if err != nil {
		return ids // then age decides
	}
	defer file.Close() // opened for reading
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if uploadID.MatchString(lines.Text()) {
			ids[lines.Text()] = true
		}
	}
	return ids
}

// noteIDs writes ids to the disk, before anything is sent under them. The caller holds noting until
// they are in u.ids: until then they are not among those that are over.
func (u *Uploader) noteIDs(ids ...string) {
	file, err := disk.OpenOwn(u.root, uploadsName, os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		_, _ = file.WriteString(strings.Join(ids, "\n") + "\n") // a hint
		_ = file.Close()
	}
}

// sweepLater lets the cleanup sweep the whole destination, once per process, when nothing else is
// to do. The caller must hold the shipping token.
func (u *Uploader) sweepLater() {
	if !u.cleanup.mayNeedSweep() {
		return
	}
	ids := u.plain.abandonUploads()
	u.cleanLater(func(c *cleanup) { c.sweep, c.mirrored = true, append(c.mirrored, ids...) })
}

func (c *cleanup) mayNeedSweep() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.swept && !c.blind
}

// sweepOnce sweeps the whole destination. Afterwards it keeps only the ids that were added since,
// and those of snapshots that wait to be sent.
func (u *Uploader) sweepOnce(ctx context.Context) {
	c := u.cleanup
	c.mu.Lock()
	mirrored, swept := slices.Clone(c.mirrored), c.swept
	c.mu.Unlock()
	if swept && len(mirrored) == 0 {
		return
	}
	u.mu.Lock()
	known := u.idsLocked()
	u.mu.Unlock()
	ids := maps.Clone(known)
	for _, id := range mirrored {
		ids[id] = true
	}
	if !u.sweepOrphans(ctx, u.retention(ids), "") {
		return
	}
	c.mu.Lock()
	c.swept, c.mirrored = true, c.mirrored[len(mirrored):]
	c.mu.Unlock()
	u.keepIDs(known)
}

// keepIDs forgets known ids, except those of snapshots that wait to be sent.
func (u *Uploader) keepIDs(known map[string]bool) {
	u.noting.Lock()
	defer u.noting.Unlock()
	if err := u.root.Remove(uploadsName); err != nil {
		return // they are forgotten after the next sweep
	}
	u.mu.Lock()
	maps.DeleteFunc(u.ids, func(id string, _ bool) bool { return known[id] })
	for _, snap := range u.snaps {
		u.ids[snap.ID] = true
	}
	left := slices.Sorted(maps.Keys(u.ids))
	u.mu.Unlock()
	if len(left) > 0 {
		u.noteIDs(left...)
	}
}

// sweepOrphans calls that of r. A later call retries after an error, unless the error is
// permanent.
func (u *Uploader) sweepOrphans(ctx context.Context, r *retention, prefix string) (done bool) {
	c := u.cleanup
	if c.isBlind() {
		return false
	}
	err := r.sweepOrphans(ctx, prefix)
	if err != nil && ctx.Err() == nil {
		u.log.Info("not looking for data left by killed uploads", "for_good", listingDenied(err), "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blind = listingDenied(err)
	return err == nil
}

// idsLocked returns the ids of this directory's uploads.
func (u *Uploader) idsLocked() map[string]bool {
	ids := make(map[string]bool, len(u.ids))
	for id := range u.ids {
		ids[id] = true
	}
	return ids
}

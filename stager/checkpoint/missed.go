package checkpoint

import (
	"maps"
	"slices"
	"time"
)

// Each checkpoint that begins, or is complete, and will not be committed is reported once: in the
// log, in the status, and by a counter with the reason. A checkpoint of several nodes that is
// abandoned has its own counter: see member.lost.

// The reasons, as labels of the counter.
const (
	missedRemoved    = "removed"    // by the trainer, before it was complete
	missedSuperseded = "superseded" // newer ones were complete before it could be uploaded
	missedUnusable   = "unusable"   // what an earlier process held of it cannot be used
)

// mostMissed limits the list in the status.
const mostMissed = 100

// missLocked lists and counts a checkpoint that will not be committed. The caller logs it.
func (u *Uploader) missLocked(label, name, reason string) {
	u.results.miss(name, reason)
	u.cfg.Metrics.missed.WithLabelValues(u.cfg.Output, label).Inc()
}

// lose reports a checkpoint that was removed before it was complete and is not held.
func (u *Uploader) lose(name string, e *entry) {
	if e.step < 0 || e.view == beforeRun || present(u.root, name) {
		return
	}
	u.mu.Lock()
	saved := u.shipped[name].Dir != "" || u.snaps[e.step] != nil
	if !saved {
		u.missLocked(missedRemoved, name, e.reason)
	}
	u.mu.Unlock()
	if saved {
		return
	}
	u.log.Warn("a checkpoint was removed before it was complete, and is not saved: call stager commit after each save, or write a marker or a temporary name first",
		"checkpoint", name, "step", e.step, "age", time.Since(e.since).Round(time.Second), "reason", e.reason)
}

// newName is a checkpoint's name that appeared in the output directory, or was there under a
// temporary name, since the last scan. If it is removed before a scan, nothing else names it.
type newName struct {
	entry  string // as it appeared, which may be its temporary name
	step   int64
	since  time.Time
	reason string // if it is lost
	again  bool   // a scan began before it appeared
}

// mostAppeared limits the names that wait for a scan.
const mostAppeared = 10_000

// appears records that an entry appeared in the output directory. With several nodes, a checkpoint
// that one node does not see is not lost.
func (u *Uploader) appears(entry string, isDir bool) {
	name, _ := finalName(entry)
	step, ok := stepOf(name, isDir)
	if of, grouped := groupOf(name); grouped && !isDir {
		name = of
		step, ok = stepOf(of, true)
	}
	if !ok || u.member != nil || u.cfg.Mode != ModeCheckpoint || checkPath(name) != nil || name[0] == '.' {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.appeared[name]; !known && len(u.appeared) < mostAppeared {
		u.appeared[name] = newName{entry: entry, step: step, since: time.Now(), reason: "it was removed before a scan found it"}
	}
}

// departed records that an entry was renamed, so that it is not taken for a removed one.
func (u *Uploader) departed(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.appeared, name)
	delete(u.halfWritten, name)
}

// vanished reports checkpoints that were removed between the last two scans, before a scan
// found them or under their temporary names. u.halfWritten has the temporary names of the previous
// scan; names and half have what the current scan found.
func (u *Uploader) vanished(names map[string]int64, half map[string]bool) {
	if u.member != nil {
		return
	}
	u.mu.Lock()
	for name := range u.halfWritten {
		final, _ := finalName(name)
		step, ok := stepOf(final, false)
		if !ok {
			step, ok = stepOf(final, true)
		}
		if ok && !half[name] {
			u.appeared[final] = newName{entry: name, step: step, since: u.listings.last, reason: "it was removed under its temporary name " + name}
		}
	}
	for name := range half {
		final, _ := finalName(name)
		delete(u.appeared, final) // a later scan finds it under either name
	}
	appeared := maps.Clone(u.appeared)
	u.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(appeared)) {
		a := appeared[name]
		_, listed := names[name]
		there := !listed && !a.again && (present(u.root, name) || present(u.root, a.entry))
		if e := u.vanishedOne(name, a, there); e != nil {
			u.lose(name, e)
		}
	}
}

// vanishedOne returns the entry of a name that appeared, if that is gone and was not saved. there
// reports that a later scan finds it.
func (u *Uploader) vanishedOne(name string, a newName, there bool) *entry {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.appeared[name] != a {
		return nil // it was renamed meanwhile
	}
	if there {
		a.again = true
		u.appeared[name] = a
		return nil
	}
	delete(u.appeared, name)
	// One that is listed and not seen is held or saved, or was removed after it was listed.
	_, saved := u.own.saved[a.step]
	if saved || u.seen[name] != nil || u.heldLocked(name) || u.shipped[name].Fingerprint != "" {
		return nil
	}
	return &entry{step: a.step, since: a.since, reason: a.reason}
}

// heldLocked reports whether there is a snapshot of the checkpoint with this name.
func (u *Uploader) heldLocked(name string) bool {
	for _, snap := range u.snaps {
		if snap.Name == name {
			return true
		}
	}
	return false
}

// missUnusable reports a checkpoint that an earlier process held and that cannot be used, if the
// trainer's own copy is gone too.
func (u *Uploader) missUnusable(snap *snapshot, err error) {
	if snap.Name == "" || u.shipped[snap.Name].Dir != "" || present(u.root, snap.Name) {
		return
	}
	u.missLocked(missedUnusable, snap.Name, err.Error())
	u.log.Warn("a checkpoint is not saved: its files that an earlier process held cannot be used, and the trainer has removed its own",
		"checkpoint", snap.Name, "step", snap.Step, "error", err)
}

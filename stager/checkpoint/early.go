package checkpoint

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/stager/checkpoint/detect"
)

// A trainer that keeps one or two checkpoints may delete one before stager has evidence that it
// is complete. The files of an incomplete checkpoint are therefore hard-linked when they are
// first seen, within a budget. When the trainer has deleted it and started a later one, the links
// are evaluated as the final state of that save.

// early is a checkpoint that is held before it is known to be complete, in
// <snapshotsName>/early-<id>/data.
type early struct {
	snap     *snapshot
	one      bool // it is a single file
	grouped  bool
	since    time.Time
	changed  time.Time        // when the files last changed; zero: see their times
	linked   map[string]local // by path
	removed  *entry           // with several nodes: its entry when the trainer removed it; nil: it exists
	known    earlyRecord      // the record on the disk
	recalled bool             // linked by an earlier process, with no new file since
}

const (
	earlyPrefix = "early-"
	mostLinks   = 10_000
)

func (e *early) dir() string { return path.Join(snapshotsName, earlyPrefix+e.snap.ID) }

// earlyLinks returns the directory with the links of a held checkpoint, or "".
func (u *Uploader) earlyLinks(name string) string {
	if e := u.early[name]; e != nil {
		return path.Join(e.dir(), dataDir)
	}
	return ""
}

// links returns the files that are held, sorted by path.
func (e *early) links() []local {
	return slices.SortedFunc(maps.Values(e.linked), func(a, b local) int { return strings.Compare(a.Path, b.Path) })
}

// holdEarly links the files of an incomplete checkpoint, whose entry is seen. It is only a
// precaution, so its failures are not errors.
func (u *Uploader) holdEarly(t tree, name string, step int64, files []local, seen *entry) {
	u.mu.Lock()
	safe := u.explicit[name] || u.shipped[name].Fingerprint != ""
	u.mu.Unlock()
	if safe || len(files) == 0 || len(files) > mostLinks {
		return
	}
	e := u.early[name]
	if e != nil && e.removed != nil { // it is being rewritten
		u.lose(name, e.removed)
		u.dropEarly(name)
		e = nil
	}
	if e == nil {
		if !u.roomForEarly(totalSize(files)) {
			return
		}
		e = &early{
			snap: &snapshot{ID: newID(), Step: step, Name: name}, one: t.only != "", grouped: t.grouped,
			since: time.Now(), linked: make(map[string]local),
		}
		if err := u.root.MkdirAll(e.dir()+"/"+dataDir, 0o700); err != nil {
			return
		}
		u.early[name] = e
	}
	now := slices.Collect(pathsOf(files))
	if removedFrom(e.links(), files) != "" {
		return // the trainer is removing it
	}
	e.snap.Step, e.snap.View, e.changed, e.recalled = step, seen.view, seen.changed, false
	if u.member != nil {
		e.snap.Round, e.snap.round = u.member.rounds.of(step)
	}
	if err := u.rememberEarly(e); err != nil {
		u.log.Debug("cannot record the files held of an incomplete checkpoint, so a restart loses them", "checkpoint", name, "error", err)
	}
	for _, f := range files {
		if before, ok := e.linked[f.Path]; ok && before.Inode == f.Inode {
			continue
		}
		err := u.linkEarly(e, name, f)
		if errors.Is(err, fs.ErrNotExist) {
			return // the trainer is removing it, and the links may be the only complete copy
		}
		if err != nil {
			u.log.Debug("cannot hold a file of an incomplete checkpoint", "checkpoint", name, "file", f.Path, "error", err)
			u.dropEarly(name)
			return
		}
	}
	for p := range e.linked {
		if _, ok := slices.BinarySearch(now, p); !ok {
			_ = u.root.Remove(path.Join(e.dir(), dataDir, p)) // a precaution only
			delete(e.linked, p)
		}
	}
}

func (u *Uploader) linkEarly(e *early, name string, f local) error {
	from := name
	if e.one {
		from = path.Dir(name)
	}
	to := path.Join(e.dir(), dataDir, f.Path)
	if err := u.root.MkdirAll(path.Dir(to), 0o700); err != nil {
		return err
	}
	if err := u.root.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := u.snapshots.hardLink(path.Join(from, f.Path), to)
	if err == nil {
		e.linked[f.Path] = f
	}
	return err
}

// roomForEarly reports whether size more bytes may be held. It drops the oldest held checkpoints
// to make room. Links use space only after the trainer has removed its own.
func (u *Uploader) roomForEarly(size int64) bool {
	if u.cfg.Hold.Checkpoints == 0 {
		return false
	}
	for len(u.early) >= u.cfg.Hold.Checkpoints {
		oldest := ""
		for name, e := range u.early {
			if oldest == "" || e.since.Before(u.early[oldest].since) {
				oldest = name
			}
		}
		if gone := u.early[oldest].removed; gone != nil {
			u.lose(oldest, gone)
		}
		u.dropEarly(oldest)
	}
	for _, e := range u.early {
		size += totalSize(slices.Collect(maps.Values(e.linked)))
	}
	free, err := u.snapshots.free(u.root)
	return err == nil && size <= free/100*int64(u.cfg.Hold.Percent)
}

func (u *Uploader) dropEarly(name string) {
	if e := u.early[name]; e != nil {
		delete(u.early, name)
		if err := u.root.RemoveAll(e.dir()); err != nil {
			u.log.Warn("cannot remove a snapshot, which takes space", "directory", e.dir(), "error", err)
		}
	}
}

// laterOnes returns, for each step, when a candidate with a higher step last changed.
func (u *Uploader) laterOnes(names map[string]int64, unfinished map[string]string) map[int64]time.Time {
	changed := make(map[int64]time.Time)
	note := func(name string, step int64) {
		if info, err := u.root.Lstat(name); err == nil && info.ModTime().After(changed[step]) {
			changed[step] = info.ModTime()
		}
	}
	for name, step := range names {
		note(name, step)
	}
	for final, name := range unfinished {
		if step, ok := stepOf(final, true); ok {
			note(name, step)
		}
	}
	later := make(map[int64]time.Time)
	var newest time.Time
	for _, step := range slices.Backward(slices.Sorted(maps.Keys(changed))) {
		if later[step] = newest; changed[step].After(newest) {
			newest = changed[step]
		}
	}
	return later
}

// removedLocked forgets incomplete checkpoints that no longer exist. It returns those of which no
// complete state was saved or superseded.
func (u *Uploader) removedLocked(names map[string]int64) map[string]*entry {
	gone := make(map[string]*entry)
	for name, e := range u.seen {
		if _, ok := names[name]; !ok {
			delete(u.seen, name)
			if u.shipped[name].Fingerprint == "" {
				gone[name] = e
			}
		}
	}
	return gone
}

// rescue takes over the checkpoints that the trainer has removed, if they are held and their save
// had ended. It reports the others as lost.
func (u *Uploader) rescue(names map[string]int64, later map[int64]time.Time, gone map[string]*entry) {
	for _, name := range slices.Sorted(maps.Keys(u.early)) {
		e := u.early[name]
		u.mu.Lock()
		seen := u.seen[name]
		u.mu.Unlock()
		_, there := names[name]
		begun := there && !later[e.snap.Step].IsZero() || !there && higher(names, e.snap.Step)
		switch {
		case there && seen == nil: // it was complete, or cannot be read for now
		case there && seen.word != "removed":
			continue
		case u.rescueForScan(e), begun && u.rescueEarly(e, nil):
			delete(u.early, name)
			delete(gone, name)
			continue
		case there:
			continue // it may be rewritten
		default:
			if gone[name] == nil {
				gone[name] = cmp.Or(e.removed, &entry{step: e.snap.Step, since: e.since, reason: "it was removed"})
			}
			if u.awaited(e) {
				e.removed = gone[name]
				delete(gone, name)
				continue
			}
		}
		u.dropEarly(name)
	}
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		u.lose(name, gone[name])
	}
}

func higher(names map[string]int64, step int64) bool {
	for _, other := range names {
		if other > step {
			return true
		}
	}
	return false
}

// rescueEarly makes a snapshot of the held files of a removed checkpoint if they are complete.
// of is the scan of several nodes that waits for it, or nil.
func (u *Uploader) rescueEarly(e *early, of *scan) bool {
	name := e.snap.Name
	root, err := u.root.OpenRoot(e.dir() + "/" + dataDir)
	if err != nil {
		return false
	}
	t := tree{root: root}
	defer t.close()
	files, marker, err := t.files()
	if err != nil || len(files) == 0 {
		return false
	}
	v, err := u.detection.weighHeld(t, name, files)
	if err != nil {
		return false
	}
	v.One, v.Group, v.Next, v.Quiet, v.Marked = e.one && !e.grouped, e.grouped, true, time.Hour, marker != nil
	v.Other, _ = u.expects(of)
	j := detect.Judge(v, &u.detection.shapes, u.cfg.QuietPeriod)
	busy, _, err := t.writers(files)
	u.mu.Lock()
	held := u.snaps[e.snap.Step] != nil
	u.mu.Unlock()
	if !j.Complete() || err != nil || busy != "" || held {
		u.log.Debug("the files held of a removed checkpoint are incomplete", "checkpoint", name, "reason", j.Reason)
		return false
	}
	if e.recalled && j.Kind == detect.Sign { // more may have been written before it, while stager was not running
		j = detect.Judgement{Kind: detect.Quiet, Word: "next", Reason: "a later one has begun"}
	}
	if j.Final() || !e.recalled {
		u.detection.learn(v, j)
	}
	if v.Part {
		j = removedPart(v, j, of)
	}
	snap := e.snap
	if e.changed.IsZero() {
		e.changed = lastChange(files, time.Time{}, time.Now())
	}
	snap.Complete, snap.Files, snap.print = e.changed.UTC(), files, fingerprint(files)
	snap.Evidence, snap.Provisional, snap.written = j.Word, !j.Final(), writtenAt(t.root, files)
	snap.Cursors = u.positions.of(name)
	u.mu.Lock()
	saved := u.shipped[name].Fingerprint == snap.print
	if !saved && u.member != nil {
		u.member.adoptLocked(snap, &entry{view: snap.View}, signOf(v, j))
	}
	u.mu.Unlock()
	if saved {
		return false
	}
	began := time.Now()
	err = u.snapshots.adopt(snap, e.dir())
	u.holding.Add(int64(time.Since(began)))
	if err != nil {
		u.log.Warn("cannot hold a checkpoint that was removed", "checkpoint", name, "error", err)
		return false
	}
	u.log.Info("a checkpoint was removed after a later one had begun, and is saved from what was held", "step", snap.Step, "checkpoint", name,
		"files", len(files), "bytes", totalSize(files), "evidence", snap.Evidence, "provisional", snap.Provisional)
	u.noting.Lock()
	u.noteIDs(snap.ID)
	u.mu.Lock()
	u.holdLocked(snap)
	if of != nil {
		of.fresh, of.early = true, true
	}
	u.mu.Unlock()
	u.noting.Unlock()
	u.warnOfUnknownPositions(snap)
	return true
}

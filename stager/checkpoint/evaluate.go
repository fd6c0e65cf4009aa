package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/stager-dev/stager/stager/checkpoint/detect"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// scanContext is what evaluate needs besides the checkpoint itself.
type scanContext struct {
	unfinished string          // an existing temporary name of the checkpoint
	temporary  map[uint64]bool // inodes that had temporary names during the last scan
	ended      bool            // as for scan
	before     time.Time       // begin of the previous scan; zero: this is the first
	later      time.Time       // last change of the newest checkpoint of a higher step; zero: none

	marked bool          // it contains a valid marker
	other  bool          // do not require framework signs: another node has them
	quiet  time.Duration // quiet period
}

// evaluate takes a snapshot of a checkpoint if it is complete, and otherwise records why not. The
// caller holds directory.
//
// Files are read without mu. Meanwhile other goroutines upload snapshots and give them up, so what
// depends on them is decided with mu, afterwards. Entries of u.seen do not change: a new one replaces
// them.
func (u *Uploader) evaluate(name string, step int64, at scanContext) {
	t, err := openTree(u.root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	err = explain(u.root, name, err)
	var files []local
	var marker fs.FileInfo
	if err == nil {
		defer t.close()
		files, marker, err = t.files()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return // it is being removed or rearranged
	}
	auto := step == autoStep
	if auto {
		step = writtenStep(files)
	}
	if errors.Is(err, errChanged) {
		u.see(name, entry{step: step, since: time.Now(), reason: "files in it come or go"})
		return
	}
	var mark mark
	if err == nil && marker != nil {
		mark, err = readMark(t.root, step)
		step = mark.Step
	}
	e := u.entryOf(name, step, t, files, err == nil, at)
	scan, known := u.knows(name, &e, files, err == nil)
	if known {
		return
	}
	e.reason, e.word, e.refused, e.fault, e.wait, e.late = "", "", true, false, 0, ""
	switch {
	case err != nil:
		e.reason, e.fault = err.Error(), true
	case len(files) == 0:
		e.reason, e.refused = "it is empty", time.Since(e.since) >= u.cfg.QuietPeriod
	case marker != nil && t.changedAfter(changeTime(marker)):
		e.reason = fmt.Sprintf("something was added to it or removed from it after its %s: write the marker last", markerName)
	case marker != nil && newerThan(files, marker.ModTime()) != "":
		e.reason = fmt.Sprintf("its %s is older than %s: write the marker last", markerName, newerThan(files, marker.ModTime()))
	case scan != nil && scan.job && newerThan(files, scan.began) != "":
		e.late = newerThan(files, scan.began)
		e.reason, e.refused = e.late+" was written after the checkpoint was complete", false
	}
	if e.reason != "" {
		u.see(name, e)
		return
	}
	at.marked = marker != nil
	at.other, at.quiet = u.expects(scan)
	view, judgement, ok := u.judge(t, name, files, &e, at)
	if ok && judgement.Final() && u.member != nil {
		u.mu.Lock()
		u.member.sawLocked(&e, step, e.print, files)
		u.mu.Unlock()
	}
	if !ok {
		if !auto { // a file that is overwritten in place would change under a link
			began := time.Now()
			u.holdEarly(t, name, step, files, &e)
			u.holding.Add(int64(time.Since(began)))
		}
		u.warnOverdue(name, &e)
		u.see(name, e)
		return
	}
	judgement = scan.confirm(judgement)
	snap := &snapshot{
		Step: step, Name: name, Complete: e.completeAt(marker), Samples: mark.SamplesSeen, Metrics: mark.Metrics,
		Cursors: mark.at(u.reached(u.positions.of(name), mark.SamplesSeen)), Files: files, print: e.print,
		Evidence: judgement.Word, Provisional: !judgement.Final(), written: writtenAt(t.root, files),
	}
	if !u.take(snap, &e, scan, signOf(view, judgement)) {
		return
	}
	logOmitted(u.log, nil, t.contentless())
	u.detection.advise(name, step, judgement)
	u.warnOfUnknownPositions(snap)
	u.dropEarly(name)
}

// see records why a checkpoint is not complete.
func (u *Uploader) see(name string, e entry) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.seen[name] = &e
}

// entryOf returns the entry of a checkpoint: that of an earlier scan if the state is the same, else a
// new one. readable reports that its files could be listed.
func (u *Uploader) entryOf(name string, step int64, t tree, files []local, readable bool, at scanContext) entry {
	u.mu.Lock()
	before := u.seen[name]
	u.mu.Unlock()
	state := fingerprint(files)
	if before != nil && before.print == state && before.step == step {
		e := *before
		e.renamed = u.renames.take(name) || e.renamed
		return e
	}
	now := time.Now()
	e := entry{
		step: step, print: state, since: now, first: now, changed: lastChange(files, at.before, now),
		renamed: u.hasInode(name, at.temporary),
	}
	if before != nil && !before.first.IsZero() {
		e.first, e.warned = before.first, before.warned
	}
	if readable {
		u.label(&e, before, t, files)
	}
	e.renamed = u.renames.take(name) || e.renamed
	return e
}

// knows reports whether a checkpoint is held, saved or refused in this state, so that there is nothing
// to evaluate. It also returns the scan that waits for it, or nil.
func (u *Uploader) knows(name string, e *entry, files []local, readable bool) (scan *scan, known bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	held, scan := u.snaps[e.step], u.scanOf(e.step)
	switch {
	case held != nil && readable && within(files, held.Files):
		// A subset of the held files means that the trainer is removing the checkpoint.
		if scan != nil {
			scan.fresh = true
		}
	case e.view == beforeRun, scan == nil && (u.shipped[name].Fingerprint == e.print || u.failed[name].print == e.print):
	default:
		seen := *e
		u.seen[name] = &seen // Wait knows of it from now on
		return scan, false
	}
	delete(u.seen, name)
	return scan, true
}

// judge decides whether a checkpoint is complete. It records the reason in e if not.
func (u *Uploader) judge(t tree, name string, files []local, e *entry, at scanContext) (v detect.View, j detect.Judgement, ok bool) {
	v, err := u.detection.weigh(t, name, files)
	if err == nil {
		v.Mark, v.Marked, v.Renamed, v.Quiet, v.Ended = at.unfinished, at.marked, e.renamed, time.Since(e.since), at.ended
		v.Draining, v.Other, v.Next = u.ending.Load(), at.other, newerThan(files, at.later) == "" && !at.later.IsZero()
		j, err = u.detection.judgeView(t, &v, at.quiet)
	}
	if err == nil && !j.Complete() && u.detection.learn(v, j) { // it may be the second checkpoint of a new shape
		j, err = u.detection.judgeView(t, &v, at.quiet)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.ErrUnexpectedEOF) {
		e.reason, e.refused = "files in it come or go", false
		return v, j, false
	}
	if err != nil {
		e.reason, e.fault = err.Error(), true
		return v, j, false
	}
	if !j.Complete() {
		e.word = j.Word
		e.reason, e.fault, e.refused, e.wait = j.Reason, j.Unsure, j.Kind == detect.Denied || j.Wait == 0, j.Wait
		return v, j, false
	}
	busy, blind, err := t.writers(files)
	if blind {
		u.mu.Lock()
		u.blind = true
		u.mu.Unlock()
	}
	switch {
	case err != nil:
		e.reason, e.fault = err.Error(), true
	case busy != "":
		e.since, e.reason, e.refused, e.wait = time.Now(), busy+" is open for writing", false, openRetry<<min(e.opened, 10)
		e.opened++
	default:
		u.detection.learn(v, j)
		return v, j, true
	}
	return v, j, false
}

// take holds a complete checkpoint, whose entry is e. It returns false if that is not possible now.
// scan is the scan that waits for it, or nil.
func (u *Uploader) take(snap *snapshot, e *entry, scan *scan, sign group.Sign) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if held := u.snaps[snap.Step]; held != nil && u.sending.sends(held) {
		e.reason, e.refused = fmt.Sprintf("step %d is on its way with other content", snap.Step), false
		u.seen[snap.Name] = e
		return false
	}
	if u.member != nil {
		u.member.adoptLocked(snap, e, sign)
	}
	if err := u.acquireLocked(snap); err != nil {
		e.since, e.reason, e.refused, e.fault = time.Now(), err.Error(), false, true
		u.seen[snap.Name] = e
		return false
	}
	if scan != nil {
		scan.fresh = true
	}
	delete(u.seen, snap.Name)
	return true
}

// hasInode reports whether the entry with this name has one of the inodes.
func (u *Uploader) hasInode(name string, inodes map[uint64]bool) bool {
	info, err := u.root.Lstat(name)
	return err == nil && inodes[inode(info)]
}

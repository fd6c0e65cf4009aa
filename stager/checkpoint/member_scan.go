package checkpoint

import (
	"fmt"
	"time"

	"github.com/stager-dev/stager/stager/checkpoint/detect"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// restoredCopy reports whether restore brought all files of a checkpoint.
func restoredCopy(t tree, files []local) bool {
	if t.only != "" {
		return false
	}
	info, err := t.root.Lstat(restored)
	return err == nil && newerThan(files, info.ModTime()) == ""
}

// labelLocked says to which view and round the files of a checkpoint belong that is seen
// for the first time: where this node was when the first of them came. before is what was
// seen under the name earlier.
func (u *Uploader) labelLocked(e *entry, before *entry, t tree, files []local) {
	m := u.member
	if m == nil {
		if newest, some := newestOf(files); some && newest.Before(u.since) {
			e.view = beforeRun
		}
		return
	}
	if e.files = files; before != nil && shares(files, before.files) {
		e.view, e.round = before.view, before.round
		return
	}
	first := time.Time{}
	for _, f := range files {
		info, err := t.root.Lstat(f.Path)
		if err != nil {
			continue
		}
		at := f.modified() // links that are made and removed change the other time
		if at.Before(m.since()) {
			at = changeTime(info) // it was copied with its times
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	last, _ := newestOf(files)
	switch {
	case first.IsZero():
		first = time.Now()
	case restoredCopy(t, files), last.Before(m.since()):
		e.view = beforeRun
		return
	}
	e.view, e.round = m.at(first)
	if !m.hasSeen(e.step) { // no notification of the kernel said so
		m.post(group.Event{What: group.Expect})
	}
	m.sighted(e.step)
	m.restores.note(e.step, before != nil)
}

// newestOf returns when the last of some files was written.
func newestOf(files []local) (newest time.Time, some bool) {
	for _, f := range files {
		if at := f.modified(); !some || at.After(newest) {
			newest, some = at, true
		}
	}
	return newest, some
}

// shares reports whether a file is in both lists in the same state.
func shares(files, others []local) bool {
	known := make(map[local]bool, len(others))
	for _, f := range others {
		known[f] = true
	}
	for _, f := range files {
		if known[f] {
			return true
		}
	}
	return false
}

func (m *member) since() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.home.Since
}

// scanOf returns the scan of a step that is under way, or nil.
func (u *Uploader) scanOf(step int64) *scan {
	if u.member == nil {
		return nil
	}
	u.member.mu.Lock()
	defer u.member.mu.Unlock()
	return u.member.scans[step]
}

// adoptLocked gives a checkpoint that is complete what other nodes know it by.
func (m *member) adoptLocked(snap *snapshot, e *entry, sign group.Sign) {
	snap.View, snap.Round, snap.Sign = e.view, e.round, sign
	view, round := m.resolve(e.view, e.round)
	done := m.u.shipped[snap.Name]
	failed := m.u.failed[snap.Name]
	sent := done.Step == snap.Step && done.Fingerprint != "" && done.Dir != "" || failed.step == snap.Step && failed.print != ""
	l := group.Local{View: view, Round: round, Step: snap.Step}
	l.Writing = m.countLocked(l, snap.print, snap.Files, sign >= group.SignOwn)
	snap.Writing, snap.Edition = l.Writing, m.edition(l, snap.print, sent)
}

// signedLocked notes that what is held was complete before it was signed.
func (m *member) signedLocked(snap *snapshot) {
	m.noteWriting(snap.local(m), snap.print, snap.Files)
}

// sawLocked counts the writing of a checkpoint that a sign completed, also where it cannot
// be held now.
func (m *member) sawLocked(e *entry, step int64, print string, files []local) {
	view, round := m.resolve(e.view, e.round)
	m.countLocked(group.Local{View: view, Round: round, Step: step}, print, files, true)
}

// expects returns what a checkpoint needs on this node to be complete: whether signs of
// frameworks are not asked for, and how long nothing in it may change. The signs are the
// first node's; another node waits for its announcement where there is to be a sign.
func (u *Uploader) expects(s *scan) (other bool, quiet time.Duration) {
	switch {
	case s != nil && s.job:
		return true, 0
	case s != nil:
		return u.cfg.Node > 0, u.cfg.QuietPeriod
	}
	return u.cfg.Node > 0 && u.member == nil, u.cfg.QuietPeriod
}

// confirm returns the judgement on files that a scan found: an announcement for all nodes
// proves what time alone does not.
func (s *scan) confirm(j detect.Judgement) detect.Judgement {
	if s == nil || !s.job || j.Final() {
		return j
	}
	return detect.Judgement{Kind: detect.Sign, Word: s.evidence(), Reason: "another node announced it for all nodes"}
}

// evidence names an announcement for all nodes.
func (s *scan) evidence() string { return fmt.Sprintf("sign of node %d", s.save.By) }

// signOf returns what a judgement proves to the other nodes. A quiet period proves nothing,
// and only a sign that a framework writes after all ranks proves it for every node.
func signOf(v detect.View, j detect.Judgement) group.Sign {
	switch {
	case !j.Final():
		return group.SignQuiet
	case v.SignedForAll():
		return group.SignJob
	}
	return group.SignOwn
}

// saidSign returns what a commit by the trainer proves to the other nodes.
func (u *Uploader) saidSign(t tree, name string, files []local) group.Sign {
	v, err := u.weigh(t, name, files)
	if err != nil {
		return group.SignOwn // the commit is of this node's files
	}
	return signOf(v, detect.Judgement{Kind: detect.Said})
}

// expect notes that files of a step come, and has announcements looked for sooner.
func (m *member) expect(step int64) {
	m.sighted(step)
	m.restores.note(step, true)
	m.post(group.Event{What: group.Expect})
}

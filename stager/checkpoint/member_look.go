package checkpoint

import (
	"time"

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
		return
	}
	if e.files = files; before != nil && shares(files, before.files) {
		e.view, e.round = before.view, before.round
		return
	}
	first, last := time.Time{}, time.Time{}
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
		if f.modified().After(last) {
			last = f.modified()
		}
	}
	switch {
	case first.IsZero():
		first = time.Now()
	case restoredCopy(t, files), last.Before(m.since()):
		e.view = beforeRun
		return
	}
	e.view, e.round = m.at(first)
	m.sighted(e.step)
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
	snap.Writing = m.writing(group.Local{View: view, Round: round, Step: snap.Step}, snap.print, sent)
}

// signOf says how this node knows that a checkpoint is complete. Signs that a framework
// writes after all ranks are done are those of every node.
func (c candidate) signOf(signed bool) group.Sign {
	switch {
	case c.forAllRanks():
		return group.SignJob
	case signed, c.hasFramework():
		return group.SignOwn
	}
	return group.SignQuiet
}

// expect notes that files of a step come, and has announcements looked for sooner.
func (m *member) expect(step int64) {
	m.sighted(step)
	m.post(group.Event{What: group.Expect})
}

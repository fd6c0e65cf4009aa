package checkpoint

import (
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/stager-dev/stager/backends/sys"
	"github.com/stager-dev/stager/stager/checkpoint/detect"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// restoredCopy reports whether all files of a checkpoint were written by restore.
func restoredCopy(t tree, files []local) bool {
	if t.only != "" {
		return false
	}
	info, err := t.root.Lstat(restored)
	return err == nil && newerThan(files, info.ModTime()) == ""
}

// label sets the view of a checkpoint that is seen for the first time: that of this node
// when its first file appeared. before is the earlier entry of the same name.
func (u *Uploader) label(e *entry, before *entry, t tree, files []local) {
	m := u.member
	if m == nil {
		if newest, some := newestOf(files); some && newest.Before(u.since) {
			e.view = beforeRun
		}
		return
	}
	if e.files = files; before != nil && shares(files, before.files) {
		e.view = before.view
		return
	}
	first := time.Time{}
	for _, f := range files {
		info, err := t.root.Lstat(f.Path)
		if err != nil {
			continue
		}
		at := f.modified() // not the change time, which changes when links are made and removed
		if at.Before(m.divided()) {
			at = appeared(t.root, f, info, m.since())
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
	e.view = m.at(first)
	if !m.hasSeen(e.step) { // no notification of the kernel reported it
		m.post(group.Event{What: group.Expect})
	}
	m.sighted(e.step)
	m.rounds.note(e.step, files, first)
}

// appeared returns when a file came to the volume. Its modification time may be from before: it was
// copied with its times. Without a birth time, as on older file systems, only a file that is older
// than this run of the pod is known to be a copy.
func appeared(root *os.Root, f local, info fs.FileInfo, since time.Time) time.Time {
	at := f.modified()
	born, ok := sys.Born(root, f.Path)
	switch {
	case ok && born.After(at):
		return born
	case !ok && at.Before(since):
		return changeTime(info)
	}
	return at
}

// newestOf returns the latest modification time of files.
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

// scanOf returns the scan of a step that is running, or nil.
func (u *Uploader) scanOf(step int64) *scan {
	if u.member == nil {
		return nil
	}
	u.member.mu.Lock()
	defer u.member.mu.Unlock()
	return u.member.scans[step]
}

// adoptLocked sets the fields of a complete checkpoint by which other nodes identify it.
func (m *member) adoptLocked(snap *snapshot, e *entry, sign group.Sign) {
	snap.View, snap.Sign = e.view, sign
	snap.Round, snap.round = m.rounds.of(snap.Step)
	m.identifyLocked(snap)
}

// identifyLocked counts which writing of its step a snapshot holds. The count depends on its view
// and round.
func (m *member) identifyLocked(snap *snapshot) {
	done := m.u.shipped[snap.Name]
	failed := m.u.failed[snap.Name]
	sent := done.Step == snap.Step && done.Fingerprint != "" && done.Dir != "" || failed.step == snap.Step && failed.print != ""
	l := group.Local{View: m.resolve(snap.View), Round: snap.Round, Step: snap.Step}
	l.Writing = m.countLocked(l, snap.print, snap.Files, snap.Sign >= group.SignOwn)
	snap.Writing, snap.Edition = l.Writing, m.edition(l, snap.print, sent)
}

// signedLocked records that a held checkpoint, which was complete already, now has final
// evidence.
func (m *member) signedLocked(snap *snapshot) {
	m.noteWriting(snap.local(m), snap.print, snap.Files)
}

// sawLocked counts the writing of a checkpoint with final evidence, even if it cannot be held
// now.
func (m *member) sawLocked(e *entry, step int64, print string, files []local) {
	round, _ := m.rounds.of(step)
	m.countLocked(group.Local{View: m.resolve(e.view), Round: round, Step: step}, print, files, true)
}

// expects returns what completes a checkpoint on this node: whether the completion files of
// frameworks are not required, and the quiet period. Only the first node has these files. Another
// node waits for its announcement where such a file is expected.
func (u *Uploader) expects(s *scan) (other bool, quiet time.Duration) {
	switch {
	case s != nil && s.job:
		return true, 0
	case s != nil:
		return u.cfg.Node > 0, u.cfg.QuietPeriod
	}
	return u.cfg.Node > 0 && u.member == nil, u.cfg.QuietPeriod
}

// confirm returns the judgement on files that a scan found. An announcement for all nodes proves
// what a quiet period does not.
func (s *scan) confirm(j detect.Judgement) detect.Judgement {
	if s == nil || !s.job || j.Final() {
		return j
	}
	return detect.Judgement{Kind: detect.Sign, Word: s.evidence(), Reason: "another node announced it for all nodes"}
}

// evidence returns the name of an announcement for all nodes as evidence.
func (s *scan) evidence() string { return fmt.Sprintf("sign of node %d", s.save.By) }

// signOf returns what a judgement proves to the other nodes. A quiet period proves nothing. Only
// a file that a framework writes after all ranks proves completion for every node.
func signOf(v detect.View, j detect.Judgement) group.Sign {
	switch {
	case !j.Final():
		return group.SignQuiet
	case v.SignedForAll():
		return group.SignJob
	}
	return group.SignOwn
}

// saidSign returns what an explicit commit by the trainer proves to the other nodes.
func (u *Uploader) saidSign(t tree, name string, files []local) group.Sign {
	v, err := u.detection.weigh(t, name, files)
	if err != nil {
		return group.SignOwn // the commit is of this node's files
	}
	return signOf(v, detect.Judgement{Kind: detect.Said})
}

// expect records that files of a step appear, and makes the machine check for announcements
// sooner.
func (m *member) expect(step int64) {
	m.sighted(step)
	m.rounds.note(step, nil, time.Time{})
	m.post(group.Event{What: group.Expect})
}

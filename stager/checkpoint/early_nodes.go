package checkpoint

import (
	"maps"
	"slices"

	"github.com/stager-dev/stager/stager/checkpoint/detect"
)

// On one of several nodes, a checkpoint that the trainer removed may belong to a save that
// another node announces later: that node has the file that is written after all ranks. The
// checkpoint stays held until a later save is announced.

// rescueForScan makes a snapshot of a held, removed checkpoint if a save waits for this
// node's files of it.
func (u *Uploader) rescueForScan(e *early) bool {
	s := u.scanOf(e.snap.Step)
	if s == nil {
		return false
	}
	u.mu.Lock()
	belongs := u.member.belongsLocked(e.snap, s.save)
	u.mu.Unlock()
	return belongs && u.rescueEarly(e, s)
}

// awaited reports whether another node may still announce the save of a checkpoint that the
// trainer has removed here.
func (u *Uploader) awaited(e *early) bool {
	if u.member == nil {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.member.mayAnnounceLocked(e.snap)
}

// mayAnnounceLocked reports whether a save of these files is open or may still be announced. It may be
// if their view is the current one and nothing later was announced in it.
func (m *member) mayAnnounceLocked(snap *snapshot) bool {
	if snap.View == beforeRun || m.is(memberFenced) {
		return false
	}
	if !m.roundedLocked(snap) {
		return true
	}
	view, current := m.resolve(snap.View), m.view()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.open {
		if a.View == view && a.Round == snap.Round && a.Step == snap.Step {
			return true
		}
	}
	for _, a := range m.announced {
		if a.View == view && (a.Round > snap.Round || a.Round == snap.Round && a.Step >= snap.Step) {
			return false
		}
	}
	return view == current
}

// removedPart weakens a judgement on the held files of a removed checkpoint, with several nodes.
// Files that appeared between the last scan and the removal are not held. Only a file that is
// written after all ranks proves that none is missing.
func removedPart(v detect.View, j detect.Judgement, of *scan) detect.Judgement {
	switch {
	case j.Kind == detect.Said || j.Kind == detect.Sign && v.SignedForAll():
		return j
	case of != nil && of.job:
		return detect.Judgement{Kind: detect.Quiet, Word: of.evidence() + ", removed", Reason: "another node announced it for all nodes"}
	}
	return detect.Judgement{Kind: detect.Quiet, Word: "next", Reason: "a later one has begun"}
}

// awaits reports whether this node holds a removed checkpoint that another node may announce.
func (u *Uploader) awaits() bool {
	u.directory.Lock()
	defer u.directory.Unlock()
	for _, e := range u.early {
		if e.removed != nil && u.awaited(e) {
			return true
		}
	}
	return false
}

// loseRemoved reports the removed checkpoints that no other node has announced.
func (u *Uploader) loseRemoved() {
	if u.member == nil {
		return
	}
	u.directory.Lock()
	defer u.directory.Unlock()
	for _, name := range slices.Sorted(maps.Keys(u.early)) {
		if e := u.early[name]; e.removed != nil {
			u.lose(name, e.removed)
			u.dropEarly(name)
		}
	}
}

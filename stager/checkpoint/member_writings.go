package checkpoint

import (
	"maps"
	"slices"

	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// This file counts the writings of a step, as a trainer may write a step several times. Nodes
// compare the counts before they make a COMMIT; see group.Writings.

// maxCounted bounds member.counted.
const maxCounted = 8

// countLocked returns the number of the writing that files are. It stores the number on the
// volume if signed is set. The caller holds Uploader.mu.
func (m *member) countLocked(l group.Local, print string, files []local, signed bool) int {
	held := m.u.snaps[l.Step]
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.counted[l.Step]
	if last == nil && held != nil && held.print == m.home.Writings.Print(l.View, l.Round, l.Step) {
		last = held.Files
	}
	first := 1
	for _, a := range m.announced {
		if a.View == l.View && a.Round == l.Round && a.Step == l.Step {
			first = max(first, a.Writing)
		}
	}
	l.Writing = m.home.Writings.Number(l, print, len(last) > 0 && within(last, files), first)
	if signed {
		m.noteWritingLocked(l, print, files)
	}
	return l.Writing
}

// noteWriting records the number of the writing that files are.
func (m *member) noteWriting(l group.Local, print string, files []local) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.noteWritingLocked(l, print, files)
}

func (m *member) noteWritingLocked(l group.Local, print string, files []local) {
	writings, changed := m.home.Writings.Note(l, print)
	if !changed {
		return
	}
	m.home.Writings = writings
	if m.counted[l.Step] = files; len(m.counted) > maxCounted {
		delete(m.counted, slices.Min(slices.Collect(maps.Keys(m.counted))))
	}
	if err := m.writeHome(); err != nil {
		m.u.log.Warn("cannot record a writing of a step on the volume", "step", l.Step, "error", err)
	}
}

// writingOf returns the last writing of a save's step that this node has seen complete; 0 is
// none.
func (m *member) writingOf(save group.Announcement) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.home.Writings.At(save.View, save.Round, save.Step)
}

// edition returns the edition of a writing with the fingerprint print. It is one more than the
// last announced edition if this node contributed other files to that one.
func (m *member) edition(l group.Local, print string, sent bool) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := 0
	for _, a := range m.announced {
		if a.Round == l.Round && a.Step == l.Step && a.Writing == l.Writing {
			last = max(last, a.Edition)
		}
	}
	if last == 0 {
		return 1
	}
	if other, ok := m.brought[l]; ok && other != print || !ok && sent {
		return last + 1
	}
	return last
}

// noteBrought records what was uploaded for a writing.
func (m *member) noteBrought(l group.Local, print string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.brought, func(o group.Local, _ string) bool { return o.View != l.View })
	m.brought[l] = print
}

package group

import (
	"cmp"
	"slices"
)

// A trainer may go back to an earlier step and write lower numbers than before. The order in which
// it wrote checkpoints is therefore the order in which a node saw them complete, and not that of
// their numbers. Trainers of a job wait for each other in every step, so the order is the same on
// all nodes. A node that has not seen a writing complete learns its place from the announcement.

// maxBefore is the maximum length of Announcement.Before.
const maxBefore = 8

// noteOrder records that w is complete on this node. A writing keeps its place when more of its
// files appear.
func (m *Machine) noteOrder(w WritingOf) {
	if !slices.Contains(m.order, w) {
		m.order = append(slices.Clone(m.order[max(0, len(m.order)-maxKnown+1):]), w)
	}
}

// forgetOrder forgets the places of writings that are no longer held. In a new view the trainer may
// write a step that an earlier view has seen complete; its place is behind those written since.
func (m *Machine) forgetOrder() {
	m.order = slices.DeleteFunc(slices.Clone(m.order), func(w WritingOf) bool {
		return !slices.ContainsFunc(m.ready, func(h held) bool { return h.writing() == w })
	})
}

// learnOrder places an announced writing after those that the announcing node saw before it, and
// after earlier writings of its step, which that node may not have seen.
func (m *Machine) learnOrder(a Announcement) {
	w := a.writing()
	if slices.Contains(m.order, w) {
		return
	}
	m.order = slices.Clone(m.order)
	at := 0
	for _, b := range a.Before {
		if i := slices.Index(m.order, b); i >= at {
			at = i + 1
		} else if i < 0 {
			m.order = slices.Insert(m.order, at, b)
			at++
		}
	}
	for i, o := range m.order {
		if m.on(ruleOfRewrites) && o.Round == w.Round && o.Step == w.Step && o.Writing < w.Writing {
			at = max(at, i+1)
		}
	}
	m.order = slices.Insert(m.order, at, w)
	m.order = m.order[max(0, len(m.order)-maxKnown):]
}

// seenBefore returns the last writings that this node saw complete before w.
func (m *Machine) seenBefore(w WritingOf) []WritingOf {
	end := max(0, slices.Index(m.order, w))
	return slices.Clone(m.order[max(0, end-maxBefore):end])
}

// before reports whether the trainer wrote a before b, as far as this node knows.
func (m *Machine) before(a, b WritingOf) bool {
	if a.Round != b.Round {
		return a.Round < b.Round
	}
	if !m.on(ruleOfOrder) {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Writing, b.Writing)) < 0
	}
	i, k := slices.Index(m.order, a), slices.Index(m.order, b)
	return i >= 0 && i < k
}

// overtaken reports whether something that the trainer wrote later was announced.
func (m *Machine) overtaken(w WritingOf) bool {
	return m.on(5) && slices.ContainsFunc(m.log.known, func(k known) bool { return m.before(w, k.writing()) })
}

// skipOlder skips the held checkpoints that the trainer wrote before an announced one.
func (m *Machine) skipOlder() {
	m.skip(func(h *held) bool { return m.overtaken(h.writing()) })
}

// newest returns the held checkpoint that the trainer wrote last.
func (m *Machine) newest() held {
	return slices.MaxFunc(m.ready, func(a, b held) int {
		return cmp.Or(cmp.Compare(a.Round, b.Round), cmp.Compare(slices.Index(m.order, a.writing()), slices.Index(m.order, b.writing())))
	})
}

func (l *Local) writing() WritingOf { return WritingOf{l.Round, l.Step, l.Writing} }

func (a *Announcement) writing() WritingOf { return WritingOf{a.Round, a.Step, a.Writing} }

package group

import "slices"

// Writings counts, on one node, how often the trainer wrote each step. Nodes compare their
// counts, so that files of two writings of a step never form one COMMIT. A trainer may write a
// step again before the first writing was announced. One node may then hold the second writing
// while another still holds the first.
//
// A node counts a new writing of a step that a sign completed before when a sign completes it
// again and one of its files has changed or disappeared. Files that were only added belong to the
// same writing. A writing that was replaced before a node saw it complete is not counted. Store
// Writings on the volume, beside the files that they count.
type Writings []Written

// Written is the last complete state of a step that a node saw.
type Written struct {
	View    string `json:"view"`
	Round   int    `json:"round"`
	Step    int64  `json:"step"`
	Writing int    `json:"writing"`
	Print   string `json:"print"` // names the state of its files
}

// maxWritings is the maximum length of Writings.
const maxWritings = 64

func (w Writings) find(view string, round int, step int64) int {
	return slices.IndexFunc(w, func(e Written) bool { return e.View == view && e.Round == round && e.Step == step })
}

// At returns the current writing of a step, or 0 if this node has seen none complete.
func (w Writings) At(view string, round int, step int64) int {
	if i := w.find(view, round, step); i >= 0 {
		return w[i].Writing
	}
	return 0
}

// Print returns the state of the files that were counted last, or "".
func (w Writings) Print(view string, round int, step int64) string {
	if i := w.find(view, round, step); i >= 0 {
		return w[i].Print
	}
	return ""
}

// Number returns the writing of a step whose files are in the state print. extends reports that
// these include all files of the state counted last, unchanged. first is the number of the first
// writing that this node sees, at least 1.
func (w Writings) Number(l Local, print string, extends bool, first int) int {
	i := w.find(l.View, l.Round, l.Step)
	switch {
	case i < 0:
		return max(first, 1)
	case w[i].Print == print || extends:
		return w[i].Writing
	}
	return w[i].Writing + 1
}

// Note records that the files in the state print belong to l.Writing. It returns the new Writings
// and whether they changed.
func (w Writings) Note(l Local, print string) (Writings, bool) {
	e := Written{l.View, l.Round, l.Step, l.Writing, print}
	i := w.find(l.View, l.Round, l.Step)
	if i >= 0 && w[i] == e {
		return w, false
	}
	w = slices.Clone(w)
	if i >= 0 {
		w = slices.Delete(w, i, i+1)
	}
	w = append(w, e)
	return w[max(0, len(w)-maxWritings):], true
}

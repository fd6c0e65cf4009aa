package group

import "slices"

// Writings counts, on one node, how often the trainer wrote each step. Nodes compare their
// counts, so that files of two writings of a step never make one COMMIT: a trainer may
// write a step again before the first writing was announced, and then one node holds the
// second writing while another one still holds the first.
//
// A node counts a writing when a checkpoint that a sign completed is complete by a sign
// again, and a file of it has changed or is gone. Files that were only added are of the
// same writing. A writing that was replaced before a node saw it complete is not counted.
// Writings belong on the volume, beside the files that they count.
type Writings []Written

// Written is a step as a node saw it complete last.
type Written struct {
	View    string `json:"view"`
	Round   int    `json:"round"`
	Step    int64  `json:"step"`
	Writing int    `json:"writing"`
	Print   string `json:"print"` // names the state of its files
}

// maxWritings bounds Writings.
const maxWritings = 64

func (w Writings) find(view string, round int, step int64) int {
	return slices.IndexFunc(w, func(e Written) bool { return e.View == view && e.Round == round && e.Step == step })
}

// At returns which writing of a step is there; 0: this node has seen none complete.
func (w Writings) At(view string, round int, step int64) int {
	if i := w.find(view, round, step); i >= 0 {
		return w[i].Writing
	}
	return 0
}

// Print returns the state of the files that At counted last, or "".
func (w Writings) Print(view string, round int, step int64) string {
	if i := w.find(view, round, step); i >= 0 {
		return w[i].Print
	}
	return ""
}

// Number returns which writing the files of a step are in the state print. extends says
// that the files of the state that was counted last are all in it, unchanged. first is the
// number of the first writing that this node sees, at least 1.
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

// Note records that the files in the state print are of l.Writing. It returns w and whether
// that is new.
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

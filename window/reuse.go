package window

import "slices"

// Reuse selects the shards of an epoch that are retained for the next one.
type Reuse string

const (
	// ReuseNone retains nothing. An acknowledged shard is removed.
	ReuseNone Reuse = "none"
	// ReuseFit retains all shards that the next epoch needs, if they all fit into Config.Size.
	// Otherwise it retains nothing.
	ReuseFit Reuse = "fit"
	// ReusePin retains the shards that the next epoch needs first, as many as there is unused space
	// for.
	ReusePin Reuse = "pin"
)

// A retained shard becomes the file of its position in the next epoch as soon as it is
// acknowledged. It loses every name that a reader knows, and lies Ready in whole/ like a prefetched
// file. So it counts toward the budget at every instant. When an earlier position needs room, the
// file that is needed last is removed first, whether it was fetched or retained.

// demand is the positions of this node's items in an epoch.
type demand struct {
	at   []int32 // by item: its first position, or nowhere
	fits bool    // all of them fit into Config.Size
}

const nowhere = -1

// wantLocked stores where an epoch needs its items, if files may be retained for it.
func (w *Window) wantLocked(epoch int, order []int32) {
	if w.cfg.Reuse == ReuseNone {
		return
	}
	v := demand{at: slices.Repeat([]int32{nowhere}, w.cfg.Items.Len())}
	var sum int64
	for pos, item := range order {
		if item != others && v.at[item] == nowhere {
			v.at[item] = int32(pos) // there are fewer items than that
			sum += w.cfg.Extent.rooms[item]
		}
	}
	v.fits = sum <= w.cfg.Size-w.cfg.leastOwn()
	if w.cfg.Reuse == ReuseFit && !v.fits && epoch == w.low.epoch+1 {
		w.log.Info("fetching shards again in each epoch: they do not all fit", "need", sum, "size", w.cfg.Size)
	}
	w.demand[epoch] = v
	undecided := w.undecided
	w.undecided = nil
	for _, e := range undecided {
		w.reuseLocked(e)
	}
}

func (w *Window) keeps(v demand) bool { return w.cfg.Reuse == ReusePin || v.fits }

// awaitedLocked reports whether a position of the next epoch need not be fetched, because the
// current epoch still has to acknowledge the same item, which is then retained.
func (w *Window) awaitedLocked(a seq, item int) bool {
	want, known := w.demand[a.epoch]
	now, current := w.demand[w.low.epoch]
	if !known || !current || a.epoch == w.low.epoch || !w.keeps(want) || int(want.at[item]) != a.pos || now.at[item] == nowhere {
		return false
	}
	was := seq{w.low.epoch, int(now.at[item])}
	return !was.before(w.low) && !w.settled[was]
}

// aheadLocked reports whether enough shards are ready before a position, so that no retained file
// has to make room for it yet. Fetching far ahead would drop files that the next epoch needs, only
// to fetch them again.
func (w *Window) aheadLocked(a seq) bool {
	if w.cfg.Reuse == ReuseNone {
		return false
	}
	n := 0
	for at, e := range w.active {
		if at.before(a) && e.state != Leased {
			n++
		}
	}
	return n >= 2*w.cfg.Parallel
}

// reuseLocked retains an acknowledged file for the next epoch, or removes it.
func (w *Window) reuseLocked(e *entry) {
	if w.cfg.Reuse != ReuseNone && e.state == Acked && !w.overLocked(e.epoch+1) && (e.epoch == w.low.epoch-1 || e.epoch == w.low.epoch) {
		if _, known := w.demand[e.epoch+1]; !known {
			w.undecided = append(w.undecided, e) // that order is being computed; those of later epochs are not
			return
		}
	}
	if e.carryOver = w.carryOverLocked(e); e.carryOver != nil {
		w.removals = append(w.removals, e)
		return
	}
	w.removeLocked(e)
}

// carryOverLocked returns the position of the next epoch that reuses an acknowledged file, or nil.
// From now on that position is not fetched.
func (w *Window) carryOverLocked(e *entry) *entry {
	want, known := w.demand[e.epoch+1]
	if !known || e.state != Acked || e.item == orphan || want.at[e.item] == nowhere || !w.keeps(want) {
		return nil
	}
	a := seq{e.epoch + 1, int(want.at[e.item])}
	// Without a journal, only the file's place records the acknowledgement.
	if a.before(w.low) || w.settled[a] || w.active[a] != nil || w.journal.torn {
		return nil
	}
	next := &entry{seq: a, item: e.item, of: e.of, name: a.fileName(e.of.Name), size: e.size, beside: e.beside, digest: e.digest, mark: e.mark, state: Planned}
	w.active[a] = next
	w.again = slices.DeleteFunc(w.again, func(b seq) bool { return a == b })
	if !a.before(w.top) {
		w.top = seq{a.epoch, a.pos + 1}
	}
	return next
}

// reusedLocked records the result of moving a file to its next position.
func (w *Window) reusedLocked(e *entry, ok bool, err error) {
	next := e.carryOver
	e.carryOver = nil
	if err != nil {
		w.troubleLocked("cannot retain a file for the next epoch", err)
	}
	if !ok {
		w.forgetLocked(next)
		w.planAgainLocked(next.seq)
		w.removeLocked(e)
		return
	}
	w.goneLocked(e, Freed, "retained for the next epoch")
	w.moveLocked(next, Ready, "retained from the previous epoch")
	w.stats.reused++
	w.metrics.reused.Inc()
	w.verifiedLocked(next)
}

// planAgainLocked schedules a position again that planning may have passed.
func (w *Window) planAgainLocked(a seq) {
	at, _ := slices.BinarySearchFunc(w.again, a, seq.compare)
	w.again = slices.Insert(w.again, at, a)
	if a.before(w.due) {
		w.due = a
	}
}

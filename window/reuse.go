package window

import "slices"

// Reuse says what of an epoch stays for the next one.
type Reuse string

const (
	// ReuseNone: nothing. An acknowledged shard goes.
	ReuseNone Reuse = "none"
	// ReuseFit: all that the next epoch wants, if all of that fits into Config.Size;
	// otherwise nothing.
	ReuseFit Reuse = "fit"
	// ReusePin: what the next epoch wants first, as much as there is no other use for.
	ReusePin Reuse = "pin"
)

// A shard that stays becomes the file of its position in the next epoch as soon as it
// is acknowledged: it loses every name that a reader knows, and lies Ready in whole/
// like one that was fetched ahead. So it counts at every instant, and when room is
// needed for what comes earlier, what is wanted last goes first, whether it was fetched
// or has stayed.

// demand is where an epoch has this node's items.
type demand struct {
	at   []int32 // by item: its first position, or nowhere
	fits bool    // all of them into Config.Size
}

const nowhere = -1

// wantLocked notes an epoch's order, when acknowledged files may stay for it.
func (w *Window) wantLocked(epoch int, order []int) {
	if w.cfg.Reuse == ReuseNone {
		return
	}
	v := demand{at: slices.Repeat([]int32{nowhere}, len(w.cfg.Items))}
	var sum int64
	for pos, item := range order {
		if item != others && v.at[item] == nowhere {
			v.at[item] = int32(pos) // there are not as many items as that
			sum += w.cfg.Items[item].room()
		}
	}
	v.fits = sum <= w.cfg.Size-w.cfg.leastOwn()
	if w.cfg.Reuse == ReuseFit && !v.fits && epoch == w.low.epoch+1 {
		w.log.Info("shards are fetched again in each epoch: all of them do not fit", "need", sum, "size", w.cfg.Size)
	}
	w.demand[epoch] = v
	undecided := w.undecided
	w.undecided = nil
	for _, e := range undecided {
		w.reuseLocked(e)
	}
}

func (w *Window) keeps(v demand) bool { return w.cfg.Reuse == ReusePin || v.fits }

// awaitedLocked tells whether a position of the next epoch is not to be fetched, since
// the current one has the item yet to be acknowledged, which then stays.
func (w *Window) awaitedLocked(a seq, item int) bool {
	want, known := w.demand[a.epoch]
	now, current := w.demand[w.low.epoch]
	if !known || !current || a.epoch == w.low.epoch || !w.keeps(want) || int(want.at[item]) != a.pos || now.at[item] == nowhere {
		return false
	}
	was := seq{w.low.epoch, int(now.at[item])}
	return !was.before(w.low) && !w.settled[was]
}

// aheadLocked tells whether so much is there before a position that nothing that has
// stayed is to make room for it yet. Fetching far ahead would drop what is wanted in
// the next epoch, only to fetch it again.
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

// reuseLocked has an acknowledged file stay for the next epoch, or go.
func (w *Window) reuseLocked(e *entry) {
	if w.cfg.Reuse != ReuseNone && e.state == Acked && !w.overLocked(e.epoch+1) && (e.epoch == w.low.epoch-1 || e.epoch == w.low.epoch) {
		if _, known := w.demand[e.epoch+1]; !known {
			w.undecided = append(w.undecided, e) // its order is on its way; those of later epochs are not
			return
		}
	}
	if e.carryOver = w.carryOverLocked(e); e.carryOver != nil {
		w.burials = append(w.burials, e)
		return
	}
	w.removeLocked(e)
}

// carryOverLocked is the position that the file of an acknowledged one is kept for, if
// there is one. From now on nothing is fetched for it.
func (w *Window) carryOverLocked(e *entry) *entry {
	want, known := w.demand[e.epoch+1]
	if !known || e.state != Acked || e.item == orphan || want.at[e.item] == nowhere || !w.keeps(want) {
		return nil
	}
	a := seq{e.epoch + 1, int(want.at[e.item])}
	// Without a journal the file's place alone says that it is acknowledged.
	if a.before(w.low) || w.settled[a] || w.active[a] != nil || w.journal.torn {
		return nil
	}
	heir := &entry{seq: a, item: e.item, name: a.fileName(w.cfg.Items[e.item].Name), size: e.size, beside: e.beside, digest: e.digest, mark: e.mark, state: Planned}
	w.active[a] = heir
	w.again = slices.DeleteFunc(w.again, func(b seq) bool { return a == b })
	if !a.before(w.top) {
		w.top = seq{a.epoch, a.pos + 1}
	}
	return heir
}

// reusedLocked takes the outcome of handing a file on.
func (w *Window) reusedLocked(e *entry, ok bool, err error) {
	heir := e.carryOver
	e.carryOver = nil
	if err != nil {
		w.troubleLocked("keep a file for the next epoch", err)
	}
	if !ok {
		w.forgetLocked(heir)
		w.planAgainLocked(heir.seq)
		w.removeLocked(e)
		return
	}
	w.goneLocked(e, Freed, "its file stays for the next epoch")
	w.moveLocked(heir, Ready, "its file stayed")
	w.stats.reused++
	w.metrics.reused.Inc()
	w.verifiedLocked(heir)
}

// planAgainLocked has a position fetched whose turn may be over.
func (w *Window) planAgainLocked(a seq) {
	at, _ := slices.BinarySearchFunc(w.again, a, seq.compare)
	w.again = slices.Insert(w.again, at, a)
	if a.before(w.due) {
		w.due = a
	}
}

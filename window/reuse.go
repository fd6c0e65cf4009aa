package window

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

// wantLocked stores where an epoch needs its items, if files may be retained for it.
func (w *Window) wantLocked(epoch int, order Order) {
	if w.cfg.Reuse == ReuseNone {
		return
	}
	d := newDemand(order, w.cfg.Extent.rooms, w.cfg.Size-w.cfg.leastOwn())
	if w.cfg.Reuse == ReuseFit && !d.fits && epoch == w.progress.low.epoch+1 {
		w.log.Info("fetching shards again in each epoch: they do not all fit", "need", d.need, "size", w.cfg.Size)
	}
	for _, e := range w.reuse.store(epoch, d) {
		w.reuseLocked(e)
	}
}

// awaitedLocked reports whether a position of the next epoch need not be fetched, because the
// current epoch still has to acknowledge the same item, which is then retained.
func (w *Window) awaitedLocked(a seq, item int) bool {
	was, awaited := w.reuse.awaited(w.progress.low.epoch, a, item)
	return awaited && !w.progress.finished(was)
}

// aheadLocked reports whether enough shards are ready before a position, so that no retained file
// has to make room for it yet. Fetching far ahead would drop files that the next epoch needs, only
// to fetch them again.
func (w *Window) aheadLocked(a seq) bool {
	if w.cfg.Reuse == ReuseNone {
		return false
	}
	return w.entries.ahead(a) >= 2*w.cfg.Parallel
}

// reuseLocked retains an acknowledged file for the next epoch, or removes it.
func (w *Window) reuseLocked(e *entry) {
	current := e.epoch == w.progress.low.epoch-1 || e.epoch == w.progress.low.epoch
	if w.cfg.Reuse != ReuseNone && e.state == Acked && !w.progress.over(e.epoch+1) && current && !w.reuse.decided(e.epoch+1) {
		w.reuse.undecided = append(w.reuse.undecided, e) // that order is being computed; those of later epochs are not
		return
	}
	if e.carryOver = w.carryOverLocked(e); e.carryOver != nil {
		w.removals.carryOver(e)
		return
	}
	w.removals.add(e)
}

// carryOverLocked returns the position of the next epoch that reuses an acknowledged file, or nil.
// From now on that position is not fetched.
func (w *Window) carryOverLocked(e *entry) *entry {
	a, wanted := w.reuse.wanted(e.epoch+1, e.item)
	if !wanted || e.state != Acked {
		return nil
	}
	// Without a journal, only the file's place records the acknowledgement.
	if w.progress.finished(a) || w.entries.has(a) || w.journal.torn {
		return nil
	}
	next := &entry{
		seq: a, item: e.item, name: a.fileName(e.itemName()), size: e.size, beside: e.beside, bytes: e.bytes, samples: e.samples,
		digest: e.digest, summed: e.summed, tree: e.tree, mark: e.mark, state: Planned,
	}
	w.entries.active[a] = next
	w.progress.reserved(a)
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
		w.entries.forget(next)
		w.progress.planAgain(next.seq)
		w.removals.add(e)
		return
	}
	w.goneLocked(e, Freed, "retained for the next epoch")
	w.moveLocked(next, Ready, "retained from the previous epoch")
	w.deliveries.reuse()
	w.verifiedLocked(next)
}

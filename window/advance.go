package window

// ackLocked acknowledges a file. The journal, or the state of the disk, already records it.
func (w *Window) ackLocked(e *entry, how string) {
	if e.lease != nil {
		w.dropLeaseLocked(e)
	}
	w.moveLocked(e, Acked, how)
	w.deliveries.acknowledge()
	w.waiting.starving.acked(e.size)
	w.closeLocked(e)
	w.reuseLocked(e)
	w.note()
}

// closeLocked marks the position as finished.
func (w *Window) closeLocked(e *entry) {
	w.entries.forget(e)
	delete(w.deliveries.history, e.seq)
	w.shares.forget(e.seq)
	w.progress.finish(e.seq)
	w.cfg.Finished(e.epoch, e.pos)
	ended := w.progress.low.epoch
	w.advanceLocked()
	if w.progress.low.epoch > ended {
		w.note()
	}
}

// quarantineLocked gives up a position. The epoch fails, or continues without it, as OnBad says.
func (w *Window) quarantineLocked(e *entry, reason string, cause error) {
	if e.lease != nil {
		w.dropLeaseLocked(e)
	}
	w.moveLocked(e, Quarantined, reason)
	w.note()
	bad := &BadItemError{e.itemName(), e.epoch, e.pos, reason, cause}
	w.troubleLocked("shard cannot be delivered", bad)
	if w.cfg.OnBad == BadFail {
		w.life.fail(bad)
		return
	}
	w.reportLocked(e, Delivery{Skipped: reason})
	if err := w.journal.add("skip", e.seq, bad.Name, reason); err != nil {
		w.troubleLocked("cannot write the journal", err) // after a kill the position is tried again
	}
	w.deliveries.skip(skip{e.seq, bad.Name, reason})
	w.closeLocked(e)
	if e.published {
		w.removals.add(e)
	} else {
		w.moveLocked(e, Skipped, "no file to remove")
	}
}

// removedLocked records the result of removing a file.
func (w *Window) removedLocked(e *entry, gone bool, err error) {
	w.removals.tried(e)
	to := Freed
	if e.state == Quarantined {
		to = Skipped
	}
	if gone {
		w.goneLocked(e, to, "file removed")
		return
	}
	if err != nil {
		w.troubleLocked("cannot remove a shard's file", err)
	}
	if e.state == Acked {
		w.moveLocked(e, Zombie, "file still open")
	}
	w.removals.open(e)
}

// goneLocked deletes all references to a removed file.
func (w *Window) goneLocked(e *entry, to State, why string) {
	w.moveLocked(e, to, why)
	w.entries.gone(e)
}

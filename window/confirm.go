package window

// Confirm reports that the plan of a window that began with Config.Unconfirmed is the right one.
func (w *Window) Confirm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.life.unconfirmed = false
	w.note()
}

// Reopen ends this window, so that another one is opened on the directory, with another plan or the
// same. Every lease ends. Afterwards Lease and Run return ErrRewound, and Rewound is closed.
func (w *Window) Reopen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.life.closed && w.life.failed == nil {
		w.rewindLocked()
	}
}

// rewindLocked ends the window with ErrRewound.
func (w *Window) rewindLocked() {
	w.life.failed = ErrRewound
	w.endLocked(ErrRewound)
	close(w.rewound)
	w.note()
}

// heldEndLocked reports whether an epoch cannot end before Confirm.
func (w *Window) heldEndLocked(epoch int) bool { return w.life.unconfirmed && w.progress.over(epoch+1) }

// awaitsConfirmLocked reports whether only Confirm is missing for the end.
func (w *Window) awaitsConfirmLocked() bool {
	order, known := w.progress.orders[w.progress.low.epoch]
	return known && w.progress.low.pos >= order.Len() && w.heldEndLocked(w.progress.low.epoch)
}

package window

import "time"

// Withdraw ends a lease that could not be sent to its reader, because the connection was lost.
// Unlike Return it counts neither as a delivery nor as a failure.
func (w *Window) Withdraw(id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, err := w.heldLocked(id)
	if err == nil {
		w.withdrawLocked(time.Now(), l)
	}
	return err
}

func (w *Window) withdrawLocked(now time.Time, l *lease) {
	if w.shares.broadcast() {
		l.e.shares()[l.group].attempts--
	} else {
		w.deliveries.withdraw(l.e.seq)
	}
	w.returnLocked(now, l, "its reader went away while it was given", noBlame)
	w.serveLocked(now)
}

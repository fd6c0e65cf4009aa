package window

// lifecycle is how far a window is between New and Close. The first error that makes Run return is
// kept. The window's mutex guards it.
type lifecycle struct {
	unconfirmed bool   // the last epoch must not end yet, see Config.Unconfirmed
	ready       bool   // readers can start; stays true
	stop        func() // ends Run and waits for it; nil before Run
	failed      error  // makes Run return
	ended       error  // returned by Lease once Run has ended
	closed      bool
}

// fail ends Run with err, unless it ends with another error already.
func (l *lifecycle) fail(err error) {
	if l.failed == nil {
		l.failed = err
	}
}

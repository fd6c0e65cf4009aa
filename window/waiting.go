package window

import (
	"slices"
	"time"
)

// waiting holds the blocked calls of Lease, first come first served, and accounts for the time that
// their readers wait. cause is what readers have waited for since the last account. The window's
// mutex guards it.
type waiting struct {
	calls    []*waiter
	cause    Cause
	starving starving
	meters   meters
}

// waiter is a blocked call of Lease.
type waiter struct {
	rd      *reader
	request LeaseRequest
	got     chan outcome // buffered, so that the sender never blocks
}

type outcome struct {
	lease Lease
	err   error
}

// add adds a blocked call of a reader. Call account before.
func (s *waiting) add(now time.Time, rd *reader, r LeaseRequest) *waiter {
	if rd.asks == 0 {
		rd.mark = now
	}
	rd.asks++
	x := &waiter{rd, r, make(chan outcome, 1)}
	s.calls = append(s.calls, x)
	return x
}

// remove removes a call that has received nothing, if it has not ended.
func (s *waiting) remove(x *waiter) {
	if i := slices.Index(s.calls, x); i >= 0 {
		s.calls = slices.Delete(s.calls, i, i+1)
		x.rd.asks--
	}
}

// serve completes the calls for which grant returns anything else than a *WaitError.
func (s *waiting) serve(grant func(*reader, LeaseRequest) (Lease, error)) {
	s.calls = slices.DeleteFunc(s.calls, func(x *waiter) bool {
		l, err := grant(x.rd, x.request)
		if waits(err) {
			return false
		}
		x.rd.asks--
		x.got <- outcome{l, err}
		return true
	})
}

// end completes all calls with err.
func (s *waiting) end(err error) {
	for _, x := range s.calls {
		x.got <- outcome{err: err}
	}
	s.calls = nil
}

// account adds the time since its last call to the waits of readers that wait and hold nothing.
func (s *waiting) account(now time.Time) {
	for _, x := range s.calls {
		d := now.Sub(x.rd.mark)
		x.rd.mark = now
		if x.rd.held == 0 && d > 0 {
			x.rd.waits[s.cause] += d
			x.rd.starved = now
			s.meters.wait(s.cause, d)
			s.starving.now.waits[s.cause] += d
		}
	}
}

// starved reports whether a reader that holds nothing waits for bytes from the object store.
func (s *waiting) starved() bool {
	return (s.cause == CauseBackend || s.cause == CauseNetwork) &&
		slices.ContainsFunc(s.calls, func(x *waiter) bool { return x.rd.held == 0 })
}

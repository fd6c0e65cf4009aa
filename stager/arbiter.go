package stager

import (
	"context"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

// arbiter divides the network between feeding and saving, feeding first: when readers
// wait for bytes uploads share a trickle for a while, and have all that there is
// otherwise. The while doubles as long as readers wait again soon after it, so that they
// wait for next to nothing. Uploads never stand still: a source that is slow for other
// reasons keeps no checkpoint from being saved.
//
// A trainer can be slowed without waiting for us: by a network so fast that summing and
// sending takes the processors that it prepares its data with. So uploads trickle too
// while this process has more than its share of them.
type arbiter struct {
	ending func() bool // the trainer has ended or is about to: nothing is more urgent then
	hungry func() bool
	used   func() time.Duration // of all processors, by this process
	share  float64              // of one processor's time
	little *rate.Limiter

	mu      sync.Mutex // guards all below
	last    time.Time  // when somebody waited
	hold    time.Duration
	asked   time.Time     // when used was
	before  time.Duration // what it said
	balance time.Duration // of processor time that is left of the share
}

const (
	trickle  = 16 << 20 // bytes per second, and no more than an eighth of a limit
	shortest = time.Second
	longest  = time.Minute

	ownShare    = 4                      // of so many parts of the machine's processors one
	askEvery    = 2 * time.Millisecond   // how long a burst may go unseen
	askAgain    = 5 * time.Millisecond   // how long who has to wait is late for an end of it
	longestDebt = 100 * time.Millisecond // for how long uploads trickle after one
)

// newArbiter takes what all transfers share, if that is limited.
func newArbiter(ending, hungry func() bool, limit *rate.Limiter) *arbiter {
	most := rate.Limit(trickle)
	if limit != nil {
		most = min(most, limit.Limit()/8)
	}
	return &arbiter{
		ending: ending, hungry: hungry, used: processorTime, share: float64(runtime.NumCPU()) / ownShare,
		little: rate.NewLimiter(most, max(int(most/16), 1)),
	}
}

// processorTime is what this process has used so far.
func processorTime() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return 0 // it knows no other error than a wrong argument
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// yield waits until an upload may send n bytes more: as its part of the trickle, or as
// there is no reason to wait any more.
func (a *arbiter) yield(ctx context.Context, n int) error {
	for n > 0 {
		now := time.Now()
		if a.ending() {
			return nil
		}
		if hungry, busy := a.holds(now, a.hungry()), a.overdraws(now); !hungry && !busy {
			return nil
		}
		if take := min(n, a.little.Burst()); a.little.AllowN(now, take) {
			n -= take
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(askAgain):
		}
	}
	return nil
}

// holds tells whether uploads trickle.
func (a *arbiter) holds(now time.Time, hungry bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if hungry {
		switch free := now.Sub(a.last) - a.hold; {
		case free > longest:
			a.hold = shortest
		case free >= 0:
			a.hold = min(2*a.hold, longest)
		}
		a.last = now
	}
	return now.Sub(a.last) < a.hold
}

// overdraws tells whether this process has had more than its share of the processors in
// the last moments.
func (a *arbiter) overdraws(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if passed := now.Sub(a.asked); passed >= askEvery {
		used := a.used()
		earned := time.Duration(float64(min(passed, time.Second)) * a.share)
		if !a.asked.IsZero() { // what was before the first upload is nobody's business
			spare, debt := float64(askEvery)*a.share, float64(longestDebt)*a.share
			a.balance = max(min(a.balance+earned-(used-a.before), time.Duration(spare)), -time.Duration(debt))
		}
		a.asked, a.before = now, used
	}
	return a.balance < 0
}

// hungry tells whether readers wait for bytes that are to come.
func (d *Daemon) hungry() bool {
	open, _ := d.windows()
	for _, w := range open {
		if w.Hungry() {
			return true
		}
	}
	return false
}

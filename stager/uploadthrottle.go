package stager

import (
	"context"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/stager-dev/stager/stager/plan"
)

// uploadThrottle divides the network between feeding and saving, feeding first: when readers
// wait for bytes uploads share a trickle for a while, and have all that there is
// otherwise. The while doubles as long as readers wait again soon after it, so that they
// wait for next to nothing. Uploads never stand still: a source that is slow for other
// reasons keeps no checkpoint from being saved.
//
// A trainer can be slowed without waiting for us: by a network so fast that summing and
// sending takes the processors that it prepares its data with. So uploads trickle too
// while this process has more than its share of them.
//
// A trainer that always waits for its data would have its checkpoints saved at a trickle
// for ever. Its plan may say how much more than that they get: as many bytes as come
// meanwhile, and twice the share of the processors (plan.BalancedShare), or what it
// takes to be in the store in time (plan.DeadlineShare).
type uploadThrottle struct {
	ending  func() bool // the trainer has ended or is about to: nothing is more urgent then
	starved func() bool
	used    func() time.Duration // of all processors, by this process
	share   float64              // of one processor's time
	limiter *rate.Limiter
	least   rate.Limit // of little

	brought func() int64 // bytes so far, by all inputs; nil: uploads get none for them
	dues    func() []due // what is to be saved in time; nil: nothing is

	mu      sync.Mutex // guards all below
	last    time.Time  // when somebody waited
	hold    time.Duration
	asked   time.Time     // when used was
	before  time.Duration // what it said
	balance time.Duration // of processor time that is left of the share
	came    int64         // what brought said
	credit  int64         // bytes that may be sent for those that came
	dueAt   time.Time     // when dues was asked
}

// due is what is to be sent, and until when.
type due struct {
	left int64
	by   time.Time
}

const (
	minRate  = 16 << 20 // bytes per second, and no more than an eighth of a limit
	shortest = time.Second
	longest  = time.Minute

	ownShare    = 4                      // of so many parts of the machine's processors one
	pollEvery   = 2 * time.Millisecond   // how long a burst may go unseen
	retryEvery  = 5 * time.Millisecond   // how long who has to wait is late for an end of it
	longestDebt = 100 * time.Millisecond // for how long uploads trickle after one

	mostCredit = 64 << 20 // bytes that came while nothing was sent
	dueAgain   = 100 * time.Millisecond
)

// newUploadThrottle takes what all transfers share, if that is limited.
func newUploadThrottle(ending, hungry func() bool, limit *rate.Limiter) *uploadThrottle {
	most := rate.Limit(minRate)
	if limit != nil {
		most = min(most, limit.Limit()/8)
	}
	return &uploadThrottle{
		ending: ending, starved: hungry, used: processorTime, share: float64(runtime.NumCPU()) / ownShare,
		limiter: rate.NewLimiter(most, max(int(most/16), 1)), least: most,
	}
}

// uploadThrottle is the plan's.
func (d *Daemon) uploadThrottle() *uploadThrottle {
	a := newUploadThrottle(d.draining, d.starved, d.cfg.Options.Bandwidth)
	switch d.cfg.Plan.Spec.Limits.Uploads {
	case plan.BalancedShare:
		a.brought, a.share = d.cfg.Options.Metrics.Received, 2*a.share
	case plan.DeadlineShare:
		a.dues = d.dues
	}
	return a
}

// dues are what the outputs still have to send.
func (d *Daemon) dues() (all []due) {
	for _, out := range d.outputs {
		if u := out.get(); u != nil {
			if left, by := u.Due(); left > 0 {
				all = append(all, due{left, by})
			}
		}
	}
	return all
}

// needed is how fast all of it must be sent to be there in time; what is late already has no limit.
func needed(now time.Time, dues []due) (all rate.Limit) {
	for _, d := range dues {
		if !now.Before(d.by) {
			return rate.Inf
		}
		all += rate.Limit(float64(d.left) / d.by.Sub(now).Seconds())
	}
	return all
}

// processorTime is what this process has used so far.
func processorTime() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return 0 // it knows no other error than a wrong argument
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// wait waits until an upload may send n bytes more: as its part of the trickle, or as
// there is no reason to wait any more.
func (a *uploadThrottle) wait(ctx context.Context, n int) error {
	for n > 0 {
		now := time.Now()
		if a.ending() {
			return nil
		}
		if hungry, busy := a.throttled(now, a.starved()), a.overShare(now); !hungry && !busy {
			return nil
		}
		a.raise(now)
		if take := min(n, a.limiter.Burst()); a.spend(take) || a.limiter.AllowN(now, take) {
			n -= take
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryEvery):
		}
	}
	return nil
}

// raise makes the trickle as wide as what is due needs it.
func (a *uploadThrottle) raise(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dues == nil || now.Sub(a.dueAt) < dueAgain {
		return
	}
	a.dueAt = now
	if most := max(needed(now, a.dues()), a.least); most != a.limiter.Limit() {
		a.limiter.SetLimitAt(now, most)
		a.limiter.SetBurstAt(now, max(int(min(most/16, mostCredit)), 1))
	}
}

// spend tells whether so many bytes may be sent for as many that came.
func (a *uploadThrottle) spend(n int) bool {
	if a.brought == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	came := a.brought()
	a.credit, a.came = min(a.credit+came-a.came, mostCredit), came
	if a.credit < int64(n) {
		return false
	}
	a.credit -= int64(n)
	return true
}

// throttled tells whether uploads trickle.
func (a *uploadThrottle) throttled(now time.Time, hungry bool) bool {
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

// overShare tells whether this process has had more than its share of the processors in
// the last moments.
func (a *uploadThrottle) overShare(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if passed := now.Sub(a.asked); passed >= pollEvery {
		used := a.used()
		earned := time.Duration(float64(min(passed, time.Second)) * a.share)
		if !a.asked.IsZero() { // what was before the first upload is nobody's business
			spare, debt := float64(pollEvery)*a.share, float64(longestDebt)*a.share
			a.balance = max(min(a.balance+earned-(used-a.before), time.Duration(spare)), -time.Duration(debt))
		}
		a.asked, a.before = now, used
	}
	return a.balance < 0
}

// starved tells whether readers wait for bytes that are to come.
func (d *Daemon) starved() bool {
	open, _ := d.windows()
	for _, w := range open {
		if w.Starved() {
			return true
		}
	}
	return false
}

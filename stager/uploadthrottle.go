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

// uploadThrottle divides the network between feeding and saving. Feeding has priority: while
// readers are starved, uploads share a minimum rate for a while; otherwise they have no limit. The
// while doubles each time that readers starve again soon after it, so readers wait very little.
// Uploads never stop completely: a source that is slow for other reasons does not prevent
// checkpoints from being saved.
//
// Uploads can also slow a trainer that does not wait for data: on a fast network, checksums and
// sending use the processors that prepare the trainer's data. So uploads also run at the minimum
// rate while this process uses more than its share of the processors.
//
// A trainer that always waits for its data would have its checkpoints saved at the minimum rate for
// ever. The plan may give uploads more: as many bytes as the inputs fetch meanwhile, and twice the
// share of the processors (plan.BalancedShare), or the rate that is needed to meet a deadline
// (plan.DeadlineShare).
type uploadThrottle struct {
	ending  func() bool // the trainer has exited or is about to: saving has priority
	starved func() bool
	used    func() time.Duration // processor time of this process
	share   float64              // share of one processor's time
	limiter *rate.Limiter
	least   rate.Limit // the minimum rate

	brought func() int64 // bytes fetched so far by all inputs; nil: they give uploads no credit
	dues    func() []due // uploads with a deadline; nil: none

	mu      sync.Mutex // guards all below
	last    time.Time  // when a reader last starved
	hold    time.Duration
	asked   time.Time     // when used was called
	before  time.Duration // its result then
	balance time.Duration // processor time that is left of the share
	came    int64         // last result of brought
	credit  int64         // bytes that may be sent in return for fetched bytes
	dueAt   time.Time     // when dues was called
}

// due is the number of bytes left to send, and the deadline.
type due struct {
	left int64
	by   time.Time
}

const (
	minRate  = 16 << 20 // bytes per second, and at most an eighth of a limit
	shortest = time.Second
	longest  = time.Minute

	ownShare    = 4                      // this process may use 1/ownShare of the processors
	pollEvery   = 2 * time.Millisecond   // a burst of starvation may go unnoticed for this long
	retryEvery  = 5 * time.Millisecond   // how often a waiting upload checks again
	longestDebt = 100 * time.Millisecond // how long uploads are throttled at most for processor time used

	mostCredit = 64 << 20 // limit of unused credit, in bytes
	dueAgain   = 100 * time.Millisecond
)

// newUploadThrottle returns a throttle. limit is shared by all transfers; nil means no limit.
func newUploadThrottle(ending, starving func() bool, limit *rate.Limiter) *uploadThrottle {
	most := rate.Limit(minRate)
	if limit != nil {
		most = min(most, limit.Limit()/8)
	}
	return &uploadThrottle{
		ending: ending, starved: starving, used: processorTime, share: float64(runtime.NumCPU()) / ownShare,
		limiter: rate.NewLimiter(most, max(int(most/16), 1)), least: most,
	}
}

// uploadThrottle returns the throttle that the plan asks for.
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

// dues returns what the outputs still have to send.
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

// needed returns the total rate that meets all deadlines. A missed deadline has no limit.
func needed(now time.Time, dues []due) (all rate.Limit) {
	for _, d := range dues {
		if !now.Before(d.by) {
			return rate.Inf
		}
		all += rate.Limit(float64(d.left) / d.by.Sub(now).Seconds())
	}
	return all
}

// processorTime returns the processor time that this process has used so far.
func processorTime() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return 0 // the only possible error is a wrong argument
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// wait blocks until an upload may send n more bytes, either within the minimum rate or because
// uploads are no longer throttled.
func (a *uploadThrottle) wait(ctx context.Context, n int) error {
	for n > 0 {
		now := time.Now()
		if a.ending() {
			return nil
		}
		if starving, busy := a.throttled(now, a.starved()), a.overShare(now); !starving && !busy {
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

// raise raises the minimum rate to what the deadlines need.
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

// spend uses credit for n bytes and reports whether there was enough.
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

// throttled reports whether uploads are limited to the minimum rate.
func (a *uploadThrottle) throttled(now time.Time, starving bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if starving {
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

// overShare reports whether this process has recently used more than its share of the processors.
func (a *uploadThrottle) overShare(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if passed := now.Sub(a.asked); passed >= pollEvery {
		used := a.used()
		earned := time.Duration(float64(min(passed, time.Second)) * a.share)
		if !a.asked.IsZero() { // time before the first upload does not count
			spare, debt := float64(pollEvery)*a.share, float64(longestDebt)*a.share
			a.balance = max(min(a.balance+earned-(used-a.before), time.Duration(spare)), -time.Duration(debt))
		}
		a.asked, a.before = now, used
	}
	return a.balance < 0
}

// starved reports whether readers wait for bytes that are still to be fetched.
func (d *Daemon) starved() bool {
	open, _ := d.windows()
	for _, w := range open {
		if w.Starved() {
			return true
		}
	}
	return false
}

package stager

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// arbiter divides the network between feeding and saving, feeding first: when readers
// wait for bytes uploads share a trickle for a while, and have all that there is
// otherwise. The while doubles as long as readers wait again soon after it, so that they
// wait for next to nothing. Uploads never stand still: a source that is slow for other
// reasons keeps no checkpoint from being saved.
type arbiter struct {
	hungry func() bool
	little *rate.Limiter

	mu   sync.Mutex // guards all below
	last time.Time  // when somebody waited
	hold time.Duration
}

const (
	trickle  = 16 << 20 // bytes per second, and no more than an eighth of a limit
	shortest = time.Second
	longest  = time.Minute
)

// newArbiter takes what all transfers share, if that is limited.
func newArbiter(hungry func() bool, limit *rate.Limiter) *arbiter {
	most := rate.Limit(trickle)
	if limit != nil {
		most = min(most, limit.Limit()/8)
	}
	return &arbiter{hungry: hungry, little: rate.NewLimiter(most, max(int(most/16), 1))}
}

// yield waits until an upload may send n bytes more.
func (a *arbiter) yield(ctx context.Context, n int) error {
	if !a.holds(time.Now(), a.hungry()) {
		return nil
	}
	for n > 0 {
		take := min(n, a.little.Burst())
		if err := a.little.WaitN(ctx, take); err != nil {
			return err
		}
		n -= take
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

// hungry tells whether readers wait for bytes that are to come; at the end they do in
// vain.
func (d *Daemon) hungry() bool {
	if d.draining() {
		return false
	}
	open, _ := d.windows()
	for _, w := range open {
		if w.Hungry() {
			return true
		}
	}
	return false
}

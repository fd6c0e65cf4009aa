package stager

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// arbiter divides the network between feeding and saving, feeding first: while readers
// wait for bytes uploads share a trickle, and have all that there is otherwise. They
// never stand still, so that a source which is slow for other reasons keeps no
// checkpoint from being saved.
type arbiter struct {
	hungry func() bool
	last   atomic.Int64 // when somebody waited, in nanoseconds
	little *rate.Limiter
}

const (
	trickle = 16 << 20    // bytes per second
	lasting = time.Second // that a wait counts after its end
)

func newArbiter(hungry func() bool) *arbiter {
	return &arbiter{hungry: hungry, little: rate.NewLimiter(trickle, trickle/16)}
}

// yield waits until an upload may send n bytes more.
func (a *arbiter) yield(ctx context.Context, n int) error {
	now := time.Now()
	if a.hungry() {
		a.last.Store(now.UnixNano())
	}
	if now.Sub(time.Unix(0, a.last.Load())) >= lasting {
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

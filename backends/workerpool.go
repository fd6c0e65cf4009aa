package backends

import (
	"context"
	"slices"
	"sync"
)

// A WorkerPool runs functions concurrently, up to a limit that may change over time, such as the
// concurrency of a Store. Its goroutines live until Wait, so the stack that a request needs grows
// once per goroutine instead of once per request.
type WorkerPool struct {
	group sync.WaitGroup
	end   context.CancelCauseFunc
	limit func() int

	mu         sync.Mutex     // guards the fields below
	err        error          // the first error
	queue      []func() error // not started yet
	room       sync.Cond      // signalled when half of the queue is free
	work       sync.Cond      // signalled when an idle goroutine may run the queue, or must end
	running    int            // functions in progress
	goroutines int
	idle       int // goroutines that wait and were not signalled
	closed     bool
}

// waiting is the maximum length of the queue. Without a queue, the end of each function wakes the
// caller of Go, which then wakes a goroutine: 2 to 4 % of the time of small objects.
const waiting = 8

// NewWorkerPool returns a pool and a context that ends with the first error or with Wait. limit is
// called by any goroutine, but not concurrently.
func NewWorkerPool(ctx context.Context, limit func() int) (*WorkerPool, context.Context) {
	ctx, end := context.WithCancelCause(ctx)
	c := &WorkerPool{end: end, limit: limit}
	c.room.L, c.work.L = &c.mu, &c.mu
	return c, ctx
}

// Go runs f as soon as the limit allows, and after the functions before it have begun. It waits while
// many others wait. Go and Wait must be called from one goroutine.
func (c *WorkerPool) Go(f func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) == waiting {
		c.room.Wait()
	}
	c.queue = append(c.queue, f)
	c.startLocked()
}

// startLocked makes another goroutine run the queue, if the limit allows.
func (c *WorkerPool) startLocked() {
	switch limit := max(c.limit(), 1); {
	case len(c.queue) == 0 || c.running >= limit:
	case c.idle > 0:
		c.idle--
		c.work.Signal()
	case c.goroutines < limit:
		c.goroutines++
		c.group.Go(c.runQueue)
	}
}

// runQueue runs functions from the queue until the pool is closed, and then as long as the limit allows.
func (c *WorkerPool) runQueue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case len(c.queue) > 0 && c.running < max(c.limit(), 1):
			c.runNextLocked()
		case c.closed: // if functions still wait, a goroutine that runs one runs them, too
			c.goroutines--
			return
		default:
			c.idle++
			c.work.Wait()
		}
	}
}

// runNextLocked runs the first function of the queue, without the lock.
func (c *WorkerPool) runNextLocked() {
	f := c.queue[0]
	c.queue = slices.Delete(c.queue, 0, 1)
	if len(c.queue) == waiting/2 {
		c.room.Signal()
	}
	c.running++
	c.startLocked() // the limit may have risen
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.running--
	}()
	if err := f(); err != nil {
		c.Fail(err)
	}
}

// Fail cancels the pool's context as if a function had returned err.
func (c *WorkerPool) Fail(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.end(err)
}

// Wait waits for all functions and returns the first error. The pool cannot be used afterwards.
func (c *WorkerPool) Wait() error {
	c.mu.Lock()
	c.closed, c.idle = true, 0
	c.work.Broadcast()
	c.mu.Unlock()
	c.group.Wait()
	c.end(nil)
	return c.err
}

package backends

import (
	"context"
	"sync"
)

// A Crew runs functions at once, as many as its limit says at the time: those that keep
// a Store busy, whose number of requests changes. Its goroutines stay until Wait, so
// that the stack that a request needs is grown once, and not for each.
type WorkerPool struct {
	group sync.WaitGroup
	end   context.CancelCauseFunc
	limit func() int
	work  chan func() error // for those that are idle

	mu      sync.Mutex // guards all below
	err     error      // the first
	ended   sync.Cond  // one of the functions
	running int        // functions
	idle    int        // goroutines without one, that nobody has chosen yet
}

// NewWorkerPool makes a Crew, and a context that ends with its first error or with Wait.
func NewWorkerPool(ctx context.Context, limit func() int) (*WorkerPool, context.Context) {
	ctx, end := context.WithCancelCause(ctx)
	c := &WorkerPool{end: end, limit: limit, work: make(chan func() error)}
	c.ended.L = &c.mu
	return c, ctx
}

// Go runs f beside the others, as soon as there is room. One goroutine calls it, and Wait.
func (c *WorkerPool) Go(f func() error) {
	c.mu.Lock()
	for c.running >= max(c.limit(), 1) {
		c.ended.Wait()
	}
	c.running++
	known := c.idle > 0
	if known {
		c.idle--
	}
	c.mu.Unlock()
	if known {
		c.work <- f
		return
	}
	c.group.Go(func() {
		c.run(f)
		for f := range c.work {
			c.run(f)
		}
	})
}

func (c *WorkerPool) run(f func() error) {
	if err := f(); err != nil {
		c.Fail(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	c.idle++
	c.ended.Signal()
}

// Fail ends the context of the others as if one of them had ended with err.
func (c *WorkerPool) Fail(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.end(err)
}

// Wait returns when all have ended, with the first error. Nothing is run after it.
func (c *WorkerPool) Wait() error {
	close(c.work)
	c.group.Wait()
	c.end(nil)
	return c.err
}

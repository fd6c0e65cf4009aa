package backends

import (
	"context"
	"sync"
)

// A WorkerPool runs functions concurrently, up to a limit that may change over time, such as the
// concurrency of a Store. Its goroutines live until Wait, so the stack that a request needs grows
// once per goroutine instead of once per request.
type WorkerPool struct {
	group sync.WaitGroup
	end   context.CancelCauseFunc
	limit func() int
	work  chan func() error // for idle goroutines

	mu      sync.Mutex // guards the fields below
	err     error      // the first error
	ended   sync.Cond  // signalled when a function returns
	running int        // functions in progress
	idle    int        // idle goroutines not yet assigned a function
}

// NewWorkerPool returns a pool and a context that ends with the first error or with Wait.
func NewWorkerPool(ctx context.Context, limit func() int) (*WorkerPool, context.Context) {
	ctx, end := context.WithCancelCause(ctx)
	c := &WorkerPool{end: end, limit: limit, work: make(chan func() error)}
	c.ended.L = &c.mu
	return c, ctx
}

// Go runs f as soon as the limit allows. Go and Wait must be called from one goroutine.
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
	close(c.work)
	c.group.Wait()
	c.end(nil)
	return c.err
}

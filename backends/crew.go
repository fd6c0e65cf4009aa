package backends

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
)

// A Crew runs functions at once, as many as its limit says at the time: those that keep
// a Store busy, whose number of requests changes.
type Crew struct {
	group *errgroup.Group
	limit func() int

	mu      sync.Mutex // guards running
	ended   sync.Cond  // one of those that ran
	running int
}

// NewCrew makes a Crew, and a context that ends with its first error or with Wait.
func NewCrew(ctx context.Context, limit func() int) (*Crew, context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	c := &Crew{group: group, limit: limit}
	c.ended.L = &c.mu
	return c, ctx
}

// Go runs f beside the others, as soon as there is room.
func (c *Crew) Go(f func() error) {
	c.mu.Lock()
	for c.running >= max(c.limit(), 1) {
		c.ended.Wait()
	}
	c.running++
	c.mu.Unlock()
	c.group.Go(func() error {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.running--
			c.ended.Signal()
		}()
		return f()
	})
}

// Fail ends the context of the others as if one of them had ended with err.
func (c *Crew) Fail(err error) { c.group.Go(func() error { return err }) }

// Wait returns when all have ended, with the first error.
func (c *Crew) Wait() error { return c.group.Wait() }

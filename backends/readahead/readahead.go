// Package readahead runs operations ahead of their consumer, concurrently, and returns the results in
// order.
//
//	produce ─ Put, Put, … ─ operations run concurrently ─ Next, in the order of Put
package readahead

import (
	"context"
	"sync"
)

// A Queue holds the results of operations, in order. Next and Close belong to one goroutine, the
// consumer.
type Queue[T any] struct {
	ctx   context.Context //nolint:containedctx // of all operations
	stop  context.CancelFunc
	work  sync.WaitGroup
	items chan chan T
}

// New returns a queue for n results, and starts produce, which fills it by Put until its context
// ends. The operations should obey that context as well: Close cancels it and waits for them.
func New[T any](ctx context.Context, n int, produce func(ctx context.Context, q *Queue[T])) *Queue[T] {
	ctx, stop := context.WithCancel(ctx)
	q := &Queue[T]{ctx: ctx, stop: stop, items: make(chan chan T, n)}
	q.work.Go(func() {
		defer close(q.items)
		produce(ctx, q)
	})
	return q
}

// Put waits for room in the queue and starts op, whose result comes after those of earlier calls. It
// returns false, without starting op, if the context ends first. Only produce calls it.
func (q *Queue[T]) Put(op func() T) bool {
	item := make(chan T, 1)
	select {
	case q.items <- item:
	case <-q.ctx.Done():
		return false
	}
	q.work.Go(func() { item <- op() })
	return true
}

// Next waits for the next result. After the last one, ok is false and err is the cause of the
// context's end, or nil if produce returned by itself.
func (q *Queue[T]) Next() (result T, ok bool, err error) {
	item, ok := <-q.items
	if !ok {
		return result, false, context.Cause(q.ctx)
	}
	return <-item, true, nil
}

// Close stops the operations, waits for them, and passes the results that Next did not return to
// drop, which may be nil.
func (q *Queue[T]) Close(drop func(T)) {
	q.stop()
	q.work.Wait()
	for item := range q.items {
		if result := <-item; drop != nil {
			drop(result)
		}
	}
}

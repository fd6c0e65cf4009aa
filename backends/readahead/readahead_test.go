package readahead_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/backends/readahead"
)

// Operations of decreasing length run ahead, and return their results in order.
func TestQueueKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		q := readahead.New(t.Context(), 8, func(_ context.Context, q *readahead.Queue[int]) {
			for i := range 8 {
				q.Put(func() int {
					time.Sleep(time.Duration(8-i) * time.Second)
					return i
				})
			}
		})
		defer q.Close(nil)
		var got []int
		for {
			i, ok, err := q.Next()
			if err != nil {
				t.Error(err)
			}
			if !ok {
				break
			}
			got = append(got, i)
		}
		if want := []int{0, 1, 2, 3, 4, 5, 6, 7}; !slices.Equal(got, want) {
			t.Errorf("got %d, want %d", got, want)
		}
		if took := time.Since(start); took != 8*time.Second {
			t.Errorf("it took %v, want 8s, that of the longest", took)
		}
	})
}

// No more operations run than the queue has room for, and the one that the consumer waits for.
func TestQueueLimitsOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var started atomic.Int64
		q := readahead.New(t.Context(), 3, func(_ context.Context, q *readahead.Queue[int]) {
			for q.Put(func() int { return int(started.Add(1)) }) {
			}
		})
		synctest.Wait()
		if got := started.Load(); got != 3 {
			t.Errorf("%d operations were started before Next, want 3", got)
		}
		if _, ok, err := q.Next(); !ok || err != nil {
			t.Errorf("Next: %t, %v, want a result", ok, err)
		}
		synctest.Wait()
		if got := started.Load(); got != 4 {
			t.Errorf("%d operations were started after Next, want 4", got)
		}
		dropped := 0
		q.Close(func(int) { dropped++ })
		if dropped != 3 {
			t.Errorf("Close dropped %d results, want 3", dropped)
		}
	})
}

func TestQueueReportsTheEndOfItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		q := readahead.New(ctx, 1, func(ctx context.Context, q *readahead.Queue[error]) {
			for q.Put(func() error {
				<-ctx.Done()
				return context.Cause(ctx)
			}) {
			}
		})
		defer q.Close(nil)
		why := errors.New("the job ends")
		cancel(why)
		for {
			got, ok, err := q.Next()
			if !ok {
				if !errors.Is(err, why) {
					t.Errorf("Next: %v, want %v", err, why)
				}
				return
			}
			if !errors.Is(got, why) {
				t.Errorf("the operation returned %v, want %v", got, why)
			}
		}
	})
}

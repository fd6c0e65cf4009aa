package backends

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// pooled runs n functions, each for the duration that takes returns, in virtual time. It returns the
// order in which they began, and how many ran at once whenever one began.
func pooled(t *testing.T, n int, limit func() int, takes func(i int) time.Duration) (order, atOnce []int) {
	t.Helper()
	begun := make(chan [2]int, n) // never full
	running := make(chan int, 1)
	running <- 0
	pool, _ := NewWorkerPool(t.Context(), limit)
	for i := range n {
		pool.Go(func() error {
			now := <-running + 1
			begun <- [2]int{i, now}
			running <- now
			time.Sleep(takes(i))
			running <- <-running - 1
			return nil
		})
	}
	if err := pool.Wait(); err != nil {
		t.Error(err)
	}
	close(begun)
	for b := range begun {
		order, atOnce = append(order, b[0]), append(atOnce, b[1])
	}
	return order, atOnce
}

// TestPoolRunsAllWithinItsLimit has limits that stay, rise, fall and do both, with functions that take
// equal and unequal times.
func TestPoolRunsAllWithinItsLimit(t *testing.T) {
	const n = 200
	for _, low := range []int{0, 1, 2, 7, 8, 9, 40} {
		for _, high := range []int{low, low + 1, 2*low + 1, 64} {
			for _, tt := range []struct {
				name string
				high func(since time.Duration) bool
			}{
				{"rises", func(since time.Duration) bool { return since >= 3*time.Second }},
				{"falls", func(since time.Duration) bool { return since < 3*time.Second }},
				{"swings", func(since time.Duration) bool { return since/time.Second%2 == 1 }},
			} {
				for _, equal := range []bool{true, false} {
					synctest.Test(t, func(t *testing.T) {
						start := time.Now()
						limit := func() int {
							if tt.high(time.Since(start)) {
								return high
							}
							return low
						}
						random := rand.New(rand.NewPCG(1, 2))
						took := make([]time.Duration, n)
						for i := range took {
							if took[i] = time.Second; !equal {
								took[i] = time.Duration(random.IntN(5000)) * time.Millisecond
							}
						}
						order, atOnce := pooled(t, n, limit, func(i int) time.Duration { return took[i] })
						slices.Sort(order)
						if len(order) != n || len(slices.Compact(order)) != n {
							t.Errorf("%d to %d, %s: %d of %d functions ran, %v", low, high, tt.name, len(order), n, order)
						}
						if got, most := slices.Max(atOnce), max(low, high, 1); got > most {
							t.Errorf("%d to %d, %s: %d ran at once, want at most %d", low, high, tt.name, got, most)
						}
						if got, want := time.Since(start), total(took)/time.Duration(max(low, 1))+5*time.Second; got > want {
							t.Errorf("%d to %d, %s: took %v, want at most %v, as long as with the lower limit", low, high, tt.name, got, want)
						}
					})
				}
			}
		}
	}
}

func total(all []time.Duration) (sum time.Duration) {
	for _, d := range all {
		sum += d
	}
	return sum
}

// TestPoolFollowsItsLimit counts how many run a second after the limit changed.
func TestPoolFollowsItsLimit(t *testing.T) {
	for _, steps := range [][]int{{1, 4}, {4, 1}, {1, 32}, {32, 1}, {3, 9, 2}, {0, 1}, {16, 64}} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			const each = 20 * time.Second
			limit := func() int { return steps[min(int(time.Since(start)/each), len(steps)-1)] }
			running := make(chan int, 1)
			running <- 0
			pool, ctx := NewWorkerPool(t.Context(), limit)
			over := errors.New("seen enough")
			go func() {
				for _, want := range steps {
					time.Sleep(each - time.Second/2)
					now := <-running
					running <- now
					if want = max(want, 1); now != want {
						t.Errorf("limits %v: %d run, want %d", steps, now, want)
					}
					time.Sleep(time.Second / 2)
				}
				pool.Fail(over)
			}()
			for ctx.Err() == nil {
				pool.Go(func() error {
					running <- <-running + 1
					time.Sleep(time.Second)
					running <- <-running - 1
					return nil
				})
			}
			if err := pool.Wait(); !errors.Is(err, over) {
				t.Errorf("got %v, want %v", err, over)
			}
		})
	}
}

// TestPoolBeginsInOrder: data is fetched as it is listed.
func TestPoolBeginsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order, _ := pooled(t, 100, func() int { return 1 }, func(int) time.Duration { return time.Second })
		if !slices.IsSorted(order) || len(order) != 100 {
			t.Errorf("began as %v, want in order", order)
		}
	})
}

// TestPoolWaitsWithFewInQueue: what is passed to Go may hold memory.
func TestPoolWaitsWithFewInQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, _ := NewWorkerPool(t.Context(), func() int { return 3 })
		passed, done := 0, make(chan struct{})
		stay := make(chan struct{})
		go func() {
			defer close(done)
			for range 100 {
				pool.Go(func() error { <-stay; return nil })
				passed++
			}
		}()
		synctest.Wait()
		if passed < 3+waiting/2 || passed > 3+waiting {
			t.Errorf("%d functions were passed, want %d to %d", passed, 3+waiting/2, 3+waiting)
		}
		close(stay)
		<-done
		if err := pool.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// TestPoolEndsWithItsFirstError runs what waits with a context that has ended.
func TestPoolEndsWithItsFirstError(t *testing.T) {
	for _, by := range []string{"a function", "Fail"} {
		synctest.Test(t, func(t *testing.T) {
			first, second := errors.New("first"), errors.New("second")
			pool, ctx := NewWorkerPool(t.Context(), func() int { return 2 })
			ended := make(chan bool, 8)
			for i := range 8 {
				pool.Go(func() error {
					time.Sleep(time.Second)
					ended <- ctx.Err() != nil
					switch {
					case by == "Fail":
					case i == 2:
						return first
					case i > 3:
						return second
					}
					return nil
				})
			}
			if by == "Fail" {
				pool.Fail(first)
				pool.Fail(second)
			}
			if err := pool.Wait(); !errors.Is(err, first) || errors.Is(err, second) || !errors.Is(context.Cause(ctx), first) {
				t.Errorf("%s: got %v and %v, want %v", by, err, context.Cause(ctx), first)
			}
			if close(ended); len(ended) != 8 {
				t.Errorf("%s: %d functions ran, want 8", by, len(ended))
			}
		})
	}
}

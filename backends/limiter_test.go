package backends

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// road is a store in virtual time. Each request has a latency, and the store processes requests one
// after the other.
type road struct {
	way    time.Duration
	each   time.Duration // processing time of one request
	crowds int           // concurrency that is refused; 0: none

	mu      sync.Mutex    // guards the fields below
	free    time.Time     // when the store is idle again
	total   time.Duration // processing time of all requests so far, in the future, too
	under   int           // requests in flight
	most    int
	refused int
}

var errCrowd = &Error{Kind: Throttled, Err: errors.New("slow down")}

func (r *road) request() error {
	r.mu.Lock()
	r.under++
	r.most = max(r.most, r.under)
	crowd := r.crowds > 0 && r.under > r.crowds
	now := time.Now()
	if r.free.Before(now) {
		r.free = now
	}
	if crowd {
		r.refused++
	} else {
		r.free = r.free.Add(r.each)
		r.total += r.each
	}
	arrives := r.free.Add(r.way)
	r.mu.Unlock()
	time.Sleep(time.Until(arrives))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.under--
	if crowd {
		return errCrowd
	}
	return nil
}

// drive makes requests of 50 KiB that succeed, and returns the time they took.
func (r *road) drive(t *testing.T, s *semaphore, requests int) time.Duration {
	t.Helper()
	start := time.Now()
	pool, ctx := NewWorkerPool(t.Context(), s.now)
	for range requests {
		pool.Go(func() error {
			for {
				if err := s.acquire(ctx); err != nil {
					return err
				}
				asked := time.Now()
				err := r.request()
				if err == nil {
					s.moved(50 << 10)
				}
				s.release(asked, err)
				if err == nil {
					return nil
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	if err := pool.Wait(); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

func TestLimiterAllowsManyRequestsOnSlowLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixed := (&road{way: 20 * time.Millisecond, each: 50 * time.Microsecond}).drive(t, newSemaphore(32, nil), 10_000)
		r := road{way: 20 * time.Millisecond, each: 50 * time.Microsecond}
		s := newSemaphore(32, newConcurrencyLimiter(32, 512, 0))
		climbed := r.drive(t, s, 10_000)
		if s.now() < 256 || r.most > 512 {
			t.Errorf("%d slots, and %d requests at once; want 256 at least, and at most 512", s.now(), r.most)
		}
		if climbed*5 > fixed {
			t.Errorf("it takes %v, and %v with 32 at once; want a fifth", climbed, fixed)
		}
	})
}

func TestLimiterAllowsFewRequestsOnFastLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := road{way: 200 * time.Microsecond, each: 100 * time.Microsecond}
		s := newSemaphore(32, newConcurrencyLimiter(32, 512, 0))
		took := r.drive(t, s, 1_000_000)
		if r.most > 64 || s.now() > 64 {
			t.Errorf("up to %d requests at once, and %d slots; want 64 at most, since more bring nothing", r.most, s.now())
		}
		if want := 101 * time.Second; took > want {
			t.Errorf("it takes %v, want %v", took, want)
		}
	})
}

// The capacity of a store may grow: another tenant leaves, a link is repaired.
func TestLimiterRampsUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := road{way: 20 * time.Millisecond, each: time.Millisecond}
		s := newSemaphore(32, newConcurrencyLimiter(32, 512, 0))
		r.drive(t, s, 2_000)
		before := s.now()
		r.each = 50 * time.Microsecond
		r.drive(t, s, 200_000)
		if before > 64 || s.now() < 256 {
			t.Errorf("%d slots when the store was slow, and %d after; want 64 at most, and 256 at least", before, s.now())
		}
	})
}

func TestLimiterBacksOffOnThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests = 100_000
		r := road{way: 20 * time.Millisecond, each: 10 * time.Microsecond, crowds: 40}
		s := newSemaphore(32, newConcurrencyLimiter(32, 512, 0))
		took := r.drive(t, s, requests)
		if s.now() > 48 || s.now() < 8 {
			t.Errorf("%d slots for a store that takes 40", s.now())
		}
		if r.refused > requests/100 {
			t.Errorf("%d of %d requests are refused, want one in a hundred at most", r.refused, requests)
		}
		if best := requests / 40 * r.way; took > best*5/2 {
			t.Errorf("it takes %v, and %v at best", took, best)
		}
	})
}

// One overload refuses all requests in flight. It must reduce the limit once, not hundreds of
// times.
func TestLimiterHalvesOncePerStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSemaphore(128, newConcurrencyLimiter(128, 512, 0))
		for range 128 {
			if err := s.acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		asked := time.Now()
		time.Sleep(time.Second)
		for range 128 {
			s.release(asked, errCrowd)
		}
		if s.now() != 64 {
			t.Errorf("%d slots after a storm, want 64", s.now())
		}
		for s.now() > 8 {
			before := s.now()
			time.Sleep(time.Second)
			if err := s.acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.release(time.Now(), errCrowd)
			if s.now() != max(before/2, 8) {
				t.Fatalf("%d slots after %d and another refusal", s.now(), before)
			}
		}
	})
}

func TestLimiterBacksOffWhenMemoryRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var used atomic.Int64
		c := newConcurrencyLimiter(32, 512, 400<<20)
		c.memory = used.Load
		s := newSemaphore(32, c)
		r := road{way: 20 * time.Millisecond}
		r.drive(t, s, 20_000)
		many := s.now()
		used.Store(301 << 20)
		r.drive(t, s, 20_000)
		if many < 256 || s.now() != minConcurrency {
			t.Errorf("%d slots with memory, %d without; want 256 at least, and %d", many, s.now(), minConcurrency)
		}
		if s.spare(func() bool { return true }) {
			t.Error("without memory there is a slot to ask a second time, want none")
		}
	})
	if memoryInUse() <= 0 {
		t.Errorf("%d bytes are in use", memoryInUse())
	}
}

// A step up that gained nothing is not a sign of trouble. When it was taken for one, hedging
// stopped for half a second, and everything waited for late responses.
func TestLimiterStepBackLeavesASlotForHedging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSemaphore(minConcurrency, newConcurrencyLimiter(minConcurrency, 512, 0))
		r := road{way: 200 * time.Microsecond, each: 100 * time.Microsecond}
		most := 0
		for most <= s.now() {
			most = s.now()
			r.drive(t, s, 200)
		}
		if !s.spare(func() bool { return true }) {
			t.Errorf("%d slots after %d, and none to ask a second time; want one", s.now(), most)
		}
	})
}

// The memory cost of connections is bounded, and other memory of the process does not count.
func TestLimiterCapsMemoryOfConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const others = 500 << 20
		c := newConcurrencyLimiter(32, 512, 0)
		s := newSemaphore(32, c)
		c.memory = func() int64 { return others + int64(s.limit)<<17 }
		r := road{way: 20 * time.Millisecond}
		r.drive(t, s, 200_000) // long enough for another probe
		if s.now() != 128 {
			t.Errorf("%d slots of 128 KiB, want 128, since more take %d MiB", s.now(), spareMemory>>20)
		}
	})
}

// A user-set cap is reached even if fewer requests would do and the store throttles. But a
// container of 64 MiB killed the process that had 512 connections at once.
func TestLimiterUserLimitIsACap(t *testing.T) {
	const others = 30 << 20
	each := func(s *semaphore) int64 { return others + int64(s.limit)<<17 }
	for name, tt := range map[string]struct {
		asked    int
		limit    int64
		memory   func(*semaphore) int64
		crowds   int
		want     int
		reported bool
	}{
		"a near store":       {512, 0, func(*semaphore) int64 { return others }, 0, 512, false},
		"few":                {20, 0, func(*semaphore) int64 { return others }, 0, 20, false},
		"very few":           {3, 0, func(*semaphore) int64 { return others }, 0, 3, false},
		"a store says no":    {100, 0, func(*semaphore) int64 { return others }, 90, 100, false},
		"they take much":     {512, 0, each, 0, 128, true},
		"a very small limit": {512, 20 << 20, each, 0, minConcurrency, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			var reported []int
			c := newCappedLimiter(boundStart, tt.asked, tt.limit, func(n int) { reported = append(reported, n) })
			s := newSemaphore(min(boundStart, tt.asked), c)
			if c != nil {
				c.memory = func() int64 { return tt.memory(s) }
			}
			r := road{way: time.Millisecond, each: 500 * time.Microsecond, crowds: tt.crowds}
			r.drive(t, s, 20_000)
			if s.now() != tt.want || r.most > tt.asked {
				t.Errorf("%s: %d slots, and up to %d at once, of the %d asked for; want %d", name, s.now(), r.most, tt.asked, tt.want)
			}
			if tt.reported && len(reported) != 1 || !tt.reported && len(reported) > 0 {
				t.Errorf("%s: told of %v", name, reported)
			}
		})
	}
}

// A slow reader or a bandwidth limit does not justify more requests.
func TestLimiterIgnoresUnusedSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSemaphore(32, newConcurrencyLimiter(32, 512, 0))
		r := road{way: 20 * time.Millisecond}
		pool, ctx := NewWorkerPool(t.Context(), func() int { return 8 })
		for range 5_000 {
			pool.Go(func() error {
				if err := s.acquire(ctx); err != nil {
					return err
				}
				defer s.release(time.Now(), nil)
				return r.request()
			})
		}
		if err := pool.Wait(); err != nil || s.now() != 32 {
			t.Errorf("%d slots though eight are used, %v; want 32", s.now(), err)
		}
	})
}

func TestSemaphoreIsFairAndLosesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSemaphore(1, nil)
		if err := s.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		var order []int
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				mine := t.Context()
				if i%2 == 1 {
					mine = ctx
				}
				err := s.acquire(mine)
				if (err != nil) != (i%2 == 1) {
					t.Errorf("waiter %d: %v", i, err)
				}
				if err == nil {
					order = append(order, i) // one permit: one at a time
					s.release(time.Now(), nil)
				}
			})
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
		if err := s.acquire(ctx); err == nil {
			t.Error("a context that has ended gets a slot")
		}
		s.release(time.Now(), nil)
		wg.Wait()
		if len(order) != 3 || order[0] != 0 || order[1] != 2 || order[2] != 4 {
			t.Errorf("granted to %v, want 0 2 4", order)
		}
		if s.used != 0 || len(s.waiting) != 0 {
			t.Errorf("%d are used and %d wait at the end, want none", s.used, len(s.waiting))
		}
	})
}

// Few file descriptors mean few requests, whatever the protocol prefers.
func TestLimiterRespectsOpenFileLimit(t *testing.T) {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	}()
	for _, tt := range []struct {
		files       uint64
		start, most int
	}{{64, 16, 0}, {400, 32, 100}, {4096, 32, 512}} {
		if tt.files > was.Max {
			t.Logf("%d files may not be open here", tt.files)
			continue
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: tt.files, Max: was.Max}); err != nil {
			t.Fatal(err)
		}
		var s Store
		s.stand(nothing{})
		most := 0
		if s.requests.limiter != nil {
			most = s.requests.limiter.most
		}
		if s.Connections() != tt.start || most != tt.most {
			t.Errorf("with %d files: %d requests, and up to %d; want %d and %d", tt.files, s.Connections(), most, tt.start, tt.most)
		}
	}
}

// nothing is a backend that has only Capabilities.
type nothing struct{ Backend }

func (nothing) Capabilities() Capabilities { return Capabilities{Parallelism: 32, MaxParallelism: 512} }

// With 512 requests configured, the first 32 had a large buffer each, in addition to the small ones
// of the later requests: 4 GiB took 68 MB of memory.
func TestBuffersMatchPlannedRequests(t *testing.T) {
	for _, tt := range []struct {
		name  string
		slots *semaphore
		want  int
	}{
		{"asked for", newSemaphore(boundStart, newCappedLimiter(boundStart, 512, 0, nil)), 512},
		{"asked for, and few", newSemaphore(minConcurrency, newCappedLimiter(boundStart, minConcurrency, 0, nil)), minConcurrency},
		{"found out", newSemaphore(minConcurrency, newConcurrencyLimiter(minConcurrency, 512, 0)), minConcurrency},
	} {
		if got := tt.slots.aim(); got != tt.want {
			t.Errorf("%s: %d at once are expected, want %d", tt.name, got, tt.want)
		}
	}
}

// incapable is a backend of which nothing is asked.
type incapable struct{ Backend }

func (incapable) Capabilities() Capabilities { return Capabilities{} }

func TestStoreReportsThatMemoryLimitsItsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		s := NewStore(incapable{}, "test", Options{Connections: 512, Memory: 20 << 20, Log: slog.New(slog.NewTextHandler(&said, nil))})
		s.requests.limiter.memory = func() int64 { return 30<<20 + int64(s.requests.limit)<<17 }
		r := road{way: time.Millisecond, each: 500 * time.Microsecond}
		r.drive(t, s.requests, 20_000)
		if want := `level=WARN msg="using fewer concurrent requests than configured to limit memory" asked=512 now=`; strings.Count(said.String(), want) != 1 {
			t.Errorf("got the log %q, want %q once", said.String(), want)
		}
	})
}

// More requests bring nothing while the processors are the bottleneck, and once they went from 8 to hundreds there: a
// process becomes faster in its first half second, and the best of several measurements counts. But a machine that is busy
// with other work is a reason for more requests, and so is a store far away.
func TestLimiterDoesNotProbeWhileProcessorsAreBusy(t *testing.T) {
	procs, cpus := float64(runtime.GOMAXPROCS(0)), float64(runtime.NumCPU())
	for _, tt := range []struct {
		ours, unused float64 // shares of the processors; negative: unknown
		grows        bool
	}{
		{0.95, 0.5, false}, // as much as the process may use, on a machine with more
		{0.95, 0, false},
		{0.6, 0, false}, // the store is on the same machine
		{0.6, 0.05, false},
		{0.6, 0.1, true},
		{0.4, 0, true}, // others use the rest
		{0.1, 0.9, true},
		{0.6, -1, true},
		{0.95, -1, false},
		{-1, -1, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			c := newConcurrencyLimiter(8, 512, 0)
			c.processors = func() (used, idle time.Duration) {
				used, idle = -1, -1
				passed := float64(time.Since(start) + time.Hour)
				if tt.ours >= 0 {
					used = time.Duration(passed * tt.ours * procs)
				}
				if tt.unused >= 0 {
					idle = time.Duration(passed * tt.unused * cpus)
				}
				return used, idle
			}
			s := newSemaphore(8, c)
			(&road{way: 20 * time.Millisecond, each: 50 * time.Microsecond}).drive(t, s, 10_000)
			if got := s.now(); got > 64 != tt.grows || got < 8 {
				t.Errorf("with %v of the processors for the process and %v unused: got limit %d, want more than 64: %v", tt.ours, tt.unused, got, tt.grows)
			}
		})
	}
}

// Requests beyond what the processors can serve cost memory, and their connections CPU time: over HTTPS from 20 ms away, 512
// connections were made where a hundred are enough.
func TestLimiterStepsNoFurtherThanProcessors(t *testing.T) {
	for name, tt := range map[string]struct {
		share, tenths int // of the processors' work, one in share is this process's; how much more than enough
	}{"the process alone": {1, 15}, "with the store on the same machine": {2, 25}} {
		for _, way := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond} {
			for _, each := range []time.Duration{50 * time.Microsecond, 200 * time.Microsecond, time.Millisecond} {
				synctest.Test(t, func(t *testing.T) {
					const requests = 50_000
					start := time.Now()
					r := road{way: way, each: each} // whose time is that of the processors
					c := newConcurrencyLimiter(8, 4096, 0)
					c.processors = func() (used, idle time.Duration) {
						worked, procs := r.worked(), time.Duration(runtime.GOMAXPROCS(0))
						return worked * procs / time.Duration(tt.share), (time.Since(start) - worked) * procs
					}
					took := r.drive(t, newSemaphore(8, c), requests)
					enough := int(way/each) + 1
					if most := max(16, enough*tt.tenths/10+1); r.most > most {
						t.Errorf("%s, %v away, %v each: up to %d requests at once, want at most %d, since %d are enough", name, way, each, r.most, most, enough)
					}
					if best := requests * each; took > best*5/4+time.Second {
						t.Errorf("%s, %v away, %v each: it takes %v, and %v at best", name, way, each, took, best)
					}
				})
			}
		}
	}
}

// worked returns the time that the store has spent on requests.
func (r *road) worked() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total - max(0, time.Until(r.free))
}

// A cap that the user set is reached, whoever uses the processors.
func TestUserSetLimitIgnoresBusyProcessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := newCappedLimiter(boundStart, 256, 0, nil)
		c.processors = func() (used, idle time.Duration) { return time.Since(start) * time.Duration(runtime.GOMAXPROCS(0)), 0 }
		s := newSemaphore(boundStart, c)
		(&road{way: 20 * time.Millisecond, each: 50 * time.Microsecond}).drive(t, s, 10_000)
		if s.now() != 256 {
			t.Errorf("got limit %d, want 256", s.now())
		}
	})
}

package backends_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// late is a store with slow responses.
type late struct {
	*mem.Backend
	capabilities backends.Capabilities
	answer       func(i int) (time.Duration, error) // to the i-th request

	mu     sync.Mutex // guards the fields below
	asked  int
	under  int // requests in flight, or open bodies
	most   int
	bodies map[io.ReadCloser]bool // not yet closed
}

func (l *late) Capabilities() backends.Capabilities { return l.capabilities }

func (l *late) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	l.mu.Lock()
	i := l.asked
	l.asked++
	l.under++
	l.most = max(l.most, l.under)
	l.mu.Unlock()
	after, err := l.answer(i)
	select {
	case <-time.After(after):
	case <-ctx.Done():
		err = &backends.Error{Kind: backends.Canceled, Err: context.Cause(ctx)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.under--
	if err != nil {
		return nil, err
	}
	body, err := l.Backend.OpenRange(ctx, obj, off, n)
	open := &lateBody{body, l}
	l.bodies[open] = true
	return open, err
}

type lateBody struct {
	io.ReadCloser
	of *late
}

func (b *lateBody) Close() error {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	delete(b.of.bodies, b)
	return b.ReadCloser.Close()
}

// every returns latencies: slow for every n-th request, usual for the others.
func every(n int, usual, slow time.Duration) func(int) (time.Duration, error) {
	return func(i int) (time.Duration, error) {
		if i%n == n-1 {
			return slow, nil
		}
		return usual, nil
	}
}

type asking struct {
	took       time.Duration
	asked      int // requests
	most       int // maximum concurrency
	second     int // hedges that won
	firstAgain int // hedges that lost
}

// readMany reads objects with the given number of workers, each sequentially.
func readMany(t *testing.T, l *late, opts backends.Options, objects, workers int) (a asking) {
	t.Helper()
	l.Backend, l.bodies = mem.New(), make(map[io.ReadCloser]bool)
	reg := prometheus.NewRegistry()
	opts.Metrics = backends.NewMetrics(reg)
	want := bytes.Repeat([]byte("0123456789"), 100)
	obj := l.Put("x", want)
	s := backends.NewStore(l, "late://", opts)
	start := time.Now()
	pool, ctx := backends.NewWorkerPool(t.Context(), func() int { return workers })
	for range objects {
		pool.Go(func() error {
			got := make(memory, len(want))
			_, err := s.ReadRange(ctx, obj, 0, obj.Size, got, nil)
			if err == nil && !bytes.Equal(got, want) {
				err = fmt.Errorf("read %q", got)
			}
			return err
		})
	}
	if err := pool.Wait(); err != nil {
		t.Error(err)
	}
	a.took = time.Since(start)
	synctest.Wait()
	if len(l.bodies) > 0 || l.under > 0 {
		t.Errorf("%d bodies are not closed, %d requests not ended", len(l.bodies), l.under)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "stager_store_hedges_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, label := range m.GetLabel() {
				switch label.GetValue() {
				case "second":
					a.second += int(m.GetCounter().GetValue())
				case "first":
					a.firstAgain += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	a.asked, a.most = l.asked, l.most
	return a
}

// memory is a destination for reads.
type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

var hedged = backends.Capabilities{Parallelism: 8, MaxParallelism: 64, Hedged: true}

func TestHedgeDoesNotWaitForLateResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := every(50, 20*time.Millisecond, time.Second)
		once := readMany(t, &late{capabilities: hedged, answer: answers}, backends.Options{NoHedge: true}, 2000, 8)
		twice := readMany(t, &late{capabilities: hedged, answer: answers}, backends.Options{}, 2000, 8)
		if once.asked != 2000 || once.second+once.firstAgain > 0 {
			t.Errorf("with NoHedge %+v, want 2000 asked", once)
		}
		if twice.took*3 > once.took*2 {
			t.Errorf("it takes %v, and %v if each is asked once; want less than two thirds", twice.took, once.took)
		}
		if again := twice.asked - 2000; again != twice.second+twice.firstAgain || again > 100 || twice.second < 30 {
			t.Errorf("%+v, want at most 100 asked again, and 30 or more of these answered first", twice)
		}
	})
}

// The percentile is known only after some responses, but one of the first may be late.
func TestHedgeStartsAmongTheFirstResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := readMany(t, &late{capabilities: hedged, answer: func(i int) (time.Duration, error) {
			if i == 3 {
				return time.Minute, nil
			}
			return 20 * time.Millisecond, nil
		}}, backends.Options{}, 200, 8)
		if got.took > time.Second || got.second != 1 {
			t.Errorf("%+v, want less than 1s, and one answered by a second request", got)
		}
	})
}

// In all of these cases a hedged request would do harm.
func TestHedgeSkipsUnsafeRequests(t *testing.T) {
	const objects = 2000
	for name, tt := range map[string]struct {
		capabilities backends.Capabilities
		opts         backends.Options
		workers      int
		answer       func(int) (time.Duration, error)
		again        int // maximum number of hedges
	}{
		"a quick store": {hedged, backends.Options{}, 8, every(50, time.Millisecond, 90*time.Millisecond), 0},
		"a protocol that does not answer at once": {
			backends.Capabilities{Parallelism: 8, MaxParallelism: 64}, backends.Options{}, 8, every(50, 20*time.Millisecond, time.Second), 0,
		},
		"a store that has become slow": {hedged, backends.Options{}, 8, func(i int) (time.Duration, error) {
			if i < 200 {
				return 20 * time.Millisecond, nil
			}
			return 2 * time.Second, nil
		}, objects / 20},
		"a store where half are late": {hedged, backends.Options{}, 8, every(2, 20*time.Millisecond, time.Second), objects / 20},
		"a store that says it is too much": {hedged, backends.Options{}, 8, func(i int) (time.Duration, error) {
			if i%50 == 0 {
				return 0, &backends.Error{Kind: backends.Throttled, Err: fmt.Errorf("slow down")}
			}
			return every(50, 20*time.Millisecond, time.Second)(i)
		}, 0},
		"as many connections as were asked for": {
			hedged, backends.Options{Connections: 8}, 9, every(50, 20*time.Millisecond, time.Second), objects / 20,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := readMany(t, &late{capabilities: tt.capabilities, answer: tt.answer}, tt.opts, objects, tt.workers)
				if again := a.second + a.firstAgain; again > tt.again {
					t.Errorf("%d of %d were asked again, want %d at most", again, objects, tt.again)
				}
				if tt.opts.Connections > 0 && a.most > tt.opts.Connections {
					t.Errorf("%d requests at once, want %d at most", a.most, tt.opts.Connections)
				}
			})
		})
	}
}

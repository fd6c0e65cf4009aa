package simulation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
)

// Storm is pods that all start at one moment, and a store that lets so many requests through.
type Storm struct {
	Pods, Reads int           // pods, and ranges that each reads
	PerSecond   float64       // requests that the store answers; others are answered with 503
	Away        time.Duration // for so long at first it answers none
	Seed        uint64
}

// Wave is what a Storm did.
type Wave struct {
	Took     time.Duration // until the last pod had all
	Best     time.Duration // the same, had no request been sent too much
	Requests int           // that reached the store
	Needed   int
	Retries  []int // in each tenth of a second
}

// Repeated is how many requests were sent for one that was needed.
func (w Wave) Repeated() float64 { return float64(w.Requests) / float64(w.Needed) }

// PeakToMean compares, in each second, the tenth with the most retries with the mean of the ten, and returns
// the mean of that, by the number of retries. It is about 1 if they come evenly, and 10 if all that come
// within a second come at once. That their number falls from second to second does not count.
func (w Wave) PeakToMean() float64 {
	peaks, all := 0.0, 0
	for second := range slices.Chunk(w.Retries, 10) {
		sum := 0
		for _, n := range second {
			sum += n
		}
		peaks += float64(10 * slices.Max(second))
		all += sum
	}
	return peaks / max(float64(all), 1)
}

// Run carries it out with a Store for each pod. It must run in virtual time.
func (s Storm) Run(ctx context.Context) (Wave, error) {
	server := newThrottling(s)
	return server.all(func(pod int) error {
		store := backends.NewStore(&remote{server: server, pod: pod}, "store", backends.Options{RetryFor: time.Hour})
		obj := backends.Object{Key: "part", Size: int64(s.Reads), Version: "1"}
		if _, err := store.Stat(ctx, "COMMIT.json"); err != nil {
			return err
		}
		var work sync.WaitGroup
		errs := make([]error, s.Reads)
		for i := range s.Reads {
			work.Go(func() {
				var to [1]byte
				_, errs[i] = store.ReadRange(ctx, obj, int64(i), 1, backends.Stretch{Bytes: to[:], Off: int64(i)}, nil)
			})
		}
		work.Wait()
		return errors.Join(errs...)
	})
}

// RunInStep carries it out with clients that wait 100 ms, 200 ms and so on after each refusal, and eight
// requests at a time: what a Store would do without random pauses and without a limit that adapts.
func (s Storm) RunInStep(ctx context.Context) (Wave, error) {
	server := newThrottling(s)
	return server.all(func(pod int) error {
		ask := func(key string) error {
			for wait := 100 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
				if err := server.ask(ctx, pod, key); err == nil {
					return nil
				}
				time.Sleep(wait)
			}
		}
		if err := ask("COMMIT.json"); err != nil {
			return err
		}
		var work sync.WaitGroup
		for lane := range 8 {
			work.Go(func() {
				for i := lane; i < s.Reads; i += 8 {
					_ = ask(fmt.Sprint("part", i)) // it asks until it is answered
				}
			})
		}
		work.Wait()
		return nil
	})
}

// throttling is a store with a bucket of tokens.
type throttling struct {
	Storm
	began time.Time

	mu      sync.Mutex // guards the fields below
	random  *rand.Rand
	tokens  float64
	filled  time.Time
	refused map[string]bool // requests that come again
	wave    Wave
}

func newThrottling(s Storm) *throttling {
	now := time.Now()
	return &throttling{Storm: s, began: now, random: rand.New(rand.NewPCG(s.Seed, 1)), filled: now, refused: make(map[string]bool)}
}

// all runs every pod and returns what came of it.
func (t *throttling) all(pod func(i int) error) (Wave, error) {
	errs := make([]error, t.Pods)
	var work sync.WaitGroup
	for i := range t.Pods {
		work.Go(func() { errs[i] = pod(i) })
	}
	work.Wait()
	w := t.wave
	w.Took = time.Since(t.began)
	w.Needed = t.Pods * (1 + t.Reads)
	w.Best = t.Away + time.Duration(float64(w.Needed)/t.PerSecond*float64(time.Second))
	return w, errors.Join(errs...)
}

// ask is a request of a pod. It takes 20 to 60 ms.
func (t *throttling) ask(ctx context.Context, pod int, what string) error {
	t.mu.Lock()
	latency := 20*time.Millisecond + time.Duration(t.random.Int64N(int64(40*time.Millisecond)))
	t.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(latency):
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	key := fmt.Sprint(pod, " ", what)
	t.wave.Requests++
	if t.refused[key] {
		tenth := int(now.Sub(t.began) / (time.Second / 10))
		for len(t.wave.Retries) <= tenth {
			t.wave.Retries = append(t.wave.Retries, 0)
		}
		t.wave.Retries[tenth]++
	}
	t.tokens = min(t.tokens+now.Sub(t.filled).Seconds()*t.PerSecond, t.PerSecond/10)
	t.filled = now
	if now.Sub(t.began) < t.Away || t.tokens < 1 {
		t.refused[key] = true
		return &backends.Error{Kind: backends.Throttled, Err: errors.New("SlowDown")}
	}
	t.tokens--
	delete(t.refused, key)
	return nil
}

// remote is the store as one pod sees it, with the capabilities of backends/s3.
type remote struct {
	server *throttling
	pod    int
}

func (r *remote) Capabilities() backends.Capabilities {
	return backends.Capabilities{
		AtomicReplace: true, ConditionalCreate: true, PinnedReads: true, Guard: backends.GuardServer,
		Parallelism: 8, MaxParallelism: 512, Hedged: true, PartSize: partSize, MaxParts: 10_000,
	}
}

func (r *remote) Stat(ctx context.Context, key string) (backends.Object, error) {
	return backends.Object{Key: key, Size: 1, Version: "1"}, r.server.ask(ctx, r.pod, key)
}

func (r *remote) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	if err := r.server.ask(ctx, r.pod, fmt.Sprint(obj.Key, off)); err != nil {
		return nil, err
	}
	return io.NopCloser(io.LimitReader(zeros{}, n)), nil
}

func (r *remote) Close() error { return nil }

var errReadOnly = errors.New("nothing is listed or written in a storm")

func (r *remote) List(context.Context, string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) { yield(backends.Object{}, errReadOnly) }
}

func (r *remote) Create(context.Context, string, backends.CreateOptions) (backends.Writer, error) {
	return nil, errReadOnly
}

func (r *remote) Delete(context.Context, string) error { return errReadOnly }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

package window

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
)

// start runs the window in virtual time. Directory watching is off: waiting for the kernel would
// stop the clock.
func (b *bench) start(ctx context.Context) (ended chan error) {
	b.watch = false
	ended = make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	return ended
}

func TestReadersShareEpochs(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const readers, epochs, shards = 4, 3, 50
		b := newBench(t, Config{Items: items(shards, 10), Size: 200, Epochs: epochs})
		ended := b.start(t.Context())
		var mu sync.Mutex
		seen := map[seq]int{}
		var wg sync.WaitGroup
		for i := range readers {
			wg.Go(func() {
				name := string(rune('a' + i))
				for epoch := 0; epoch < epochs; {
					l, err := b.Lease(t.Context(), LeaseRequest{Reader: name, Wait: time.Hour, Bound: true})
					if err != nil {
						if !isEnd(err, epoch) {
							t.Errorf("%s got %v, want the end of epoch %d", name, err, epoch)
							return
						}
						epoch++
						continue
					}
					if l.Epoch != epoch {
						t.Errorf("%s got epoch %d before the end of %d", name, l.Epoch, epoch)
					}
					time.Sleep(time.Duration(1+i) * time.Millisecond)
					mu.Lock()
					seen[seq{l.Epoch, l.Pos}]++
					mu.Unlock()
					if err := b.Ack(l.ID); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for a, n := range seen {
			if n != 1 {
				t.Errorf("%v was delivered %d times", a, n)
			}
		}
		if len(seen) != epochs*shards {
			t.Errorf("%d were delivered, want %d", len(seen), epochs*shards)
		}
		if s := b.Status(); s.Peak > 200 || !s.Done {
			t.Errorf("got %+v", s)
		}
	})
}

// All readers wait for the first shard, so its fetch has the network to itself. That is limited in
// time, because it may be slow for other reasons.
func TestFirstFetchIsAlone(t *testing.T) {
	for _, tt := range []struct {
		what string
		then func(*bench)
	}{
		{"it has ended", func(b *bench) { b.arrive(0) }},
		{"it takes long", func(*bench) { time.Sleep(firstAlone) }},
	} {
		virtual(t, func(t *testing.T) {
			b := newBench(t, Config{Items: items(9, 10), Size: 90, Epochs: 1, Parallel: 3})
			b.async = true
			b.step()
			time.Sleep(firstAlone / 2)
			b.step()
			if got := len(b.fetches.running); got != 1 {
				t.Errorf("%d are fetched at first, want 1", got)
			}
			tt.then(b)
			b.step()
			if got := len(b.fetches.running); got != 3 {
				t.Errorf("%d are fetched when %s, want 3", got, tt.what)
			}
		})
	}
}

// Fetches finish in reverse order, except for the first, which is alone. Shards are delivered in
// plan order all the same, so that training is reproducible.
func TestLeasesKeepPlanOrder(t *testing.T) {
	for _, tt := range []struct {
		anyOrder bool
		want     []int
	}{
		{false, []int{0, 1, 2, 3}},
		{true, []int{0, 3, 2, 1}},
	} {
		virtual(t, func(t *testing.T) {
			b := newBench(t, Config{Items: items(4, 10), Size: 40, Epochs: 1, AnyOrder: tt.anyOrder})
			b.async = true
			b.step()
			var got []int
			for range 4 {
				b.arrive(len(b.pending) - 1)
				for b.step().work() {
				}
				for {
					l, err := b.lease("r")
					if err != nil {
						break
					}
					got = append(got, l.Pos)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("any order %t: got %v, want %v", tt.anyOrder, got, tt.want)
			}
		})
	}
}

func TestWaitsAreMeasuredByCause(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(2, 10), Size: 20, Epochs: 1})
		b.fetcher.hang = make(chan struct{})
		b.start(t.Context())
		if _, err := b.Lease(t.Context(), LeaseRequest{Reader: "r", Wait: 5 * time.Second}); !isWait(err, CauseBackend) {
			t.Errorf("got %v, want to wait for the backend", err)
		}
		got := make(chan error)
		go func() {
			_, err := b.Lease(t.Context(), LeaseRequest{Reader: "r", Wait: time.Hour})
			got <- err
		}()
		time.Sleep(3 * time.Second)
		starved := []bool{b.Starved()}
		close(b.fetcher.hang)
		if err := <-got; err != nil {
			t.Error(err)
		}
		if starved = append(starved, b.Starved()); !starved[0] || starved[1] {
			t.Errorf("while a reader waited for the store and after, the window was starved: %v", starved)
		}
		b.must(b.Lease(t.Context(), LeaseRequest{Reader: "other", Wait: time.Second, Bound: true}))
		if _, err := b.Lease(t.Context(), LeaseRequest{Reader: "idle", Wait: 7 * time.Second}); !isWait(err, CauseReaders) {
			t.Errorf("got %v, want to wait for readers", err)
		}
		// A reader that holds a shard does not starve.
		if _, err := b.Lease(t.Context(), LeaseRequest{Reader: "r", Wait: 9 * time.Second}); !isWait(err, CauseReaders) {
			t.Errorf("got %v, want to wait for readers", err)
		}
		for _, rd := range b.Status().Readers {
			want := map[string]map[Cause]float64{"r": {CauseBackend: 8}, "idle": {CauseReaders: 7}, "other": {}}[rd.ID]
			for _, cause := range causes {
				if rd.Waits[cause] != want[cause] {
					t.Errorf("%s waited %v s for %s, want %v", rd.ID, rd.Waits[cause], cause, want[cause])
				}
			}
		}
	})
}

func TestLeasesExpireUnlessBound(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(3, 10), Size: 30, Epochs: 1, LeaseTimeout: time.Minute})
		b.start(t.Context())
		ask := func(bound bool) Lease {
			return b.must(b.Lease(t.Context(), LeaseRequest{Reader: "r", Wait: time.Second, Bound: bound}))
		}
		loose, bound, renewed := ask(false), ask(true), ask(false)
		time.Sleep(50 * time.Second)
		b.ok(b.Renew(renewed.ID))
		time.Sleep(20 * time.Second)
		again := b.must(b.Lease(t.Context(), LeaseRequest{Reader: "s", Wait: time.Second, Bound: true}))
		if again.Pos != loose.Pos || again.Attempt != 2 {
			t.Errorf("got %+v, want what ran out, again", again)
		}
		if err := b.Ack(loose.ID); !errors.Is(err, ErrNoLease) {
			t.Errorf("got %v, want ErrNoLease", err)
		}
		time.Sleep(20 * time.Second)
		b.ok(b.Ack(renewed.ID))
		time.Sleep(time.Hour)
		b.ok(b.Ack(bound.ID))
		if _, err := b.Attach(again.ID, false); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute)
		if err := b.Ack(again.ID); !errors.Is(err, ErrNoLease) {
			t.Errorf("let loose: got %v, want ErrNoLease", err)
		}
	})
}

func TestRestartKeepsLeasesForAWhile(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(3, 10), Size: 30, Epochs: 1, Reattach: 30 * time.Second})
		b.idle()
		acked, attached, silent := b.must(b.lease("r")), b.must(b.lease("r")), b.must(b.lease("r"))
		b.crash()
		b.idle()
		b.ok(b.Ack(acked.ID))
		if l, err := b.Attach(attached.ID, true); err != nil || l != attached {
			t.Errorf("got %+v (%v), want %+v", l, err, attached)
		}
		b.advance(31 * time.Second)
		b.ok(b.Ack(acked.ID)) // a repeated request
		b.ok(b.Ack(attached.ID))
		if err := b.Ack(silent.ID); !errors.Is(err, ErrNoLease) {
			t.Errorf("got %v, want ErrNoLease", err)
		}
		if l := b.must(b.lease("s")); l.Pos != silent.Pos || l.Attempt != 2 {
			t.Errorf("got %+v, want what nobody attached, again", l)
		}
	})
}

// The journal contains no times that a later start compares with its own clock. Virtual time starts
// again in each bubble, like a clock that is set back.
func TestLeaseExpiryIgnoresClockSetBack(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), Items: items(3, 10), Size: 30, Epochs: 1, Reattach: 30 * time.Second, LeaseTimeout: time.Minute}
	var acked, attached, silent Lease
	virtual(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		b := newBench(t, cfg)
		b.idle()
		acked, attached, silent = b.must(b.lease("r")), b.must(b.lease("r")), b.must(b.lease("r"))
	})
	virtual(t, func(t *testing.T) {
		b := newBench(t, cfg)
		b.idle()
		b.ok(b.Ack(acked.ID))
		if l, err := b.Attach(attached.ID, false); err != nil || l != attached {
			t.Errorf("got %+v (%v), want %+v", l, err, attached)
		}
		b.advance(31 * time.Second)
		if l := b.must(b.lease("s")); l.Pos != silent.Pos || l.Attempt != 2 {
			t.Errorf("got %+v, want what nobody attached, again", l)
		}
		b.advance(time.Minute)
		if err := b.Ack(attached.ID); !errors.Is(err, ErrNoLease) {
			t.Errorf("after its time-out: got %v, want ErrNoLease", err)
		}
	})
}

// A reader was killed while stager was down, or never received the response with its lease, and
// comes back without it. The shard, and so the end of the epoch, must not wait for Reattach.
func TestReturningReaderGetsItsLeaseAgain(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(3, 10), Size: 30, Epochs: 1})
		b.idle()
		unheard, others := b.must(b.lease("r")), b.must(b.lease("s"))
		b.crash()
		b.idle()
		if l := b.must(b.lease("r")); l.Pos != unheard.Pos || l.Attempt != 2 {
			t.Errorf("got %+v, want position %d again", l, unheard.Pos)
		}
		b.ok(b.Ack(others.ID)) // leases of other readers are not touched
		if s := b.Status(); s.Redelivered != 1 {
			t.Errorf("%d shards were redelivered, want 1", s.Redelivered)
		}
	})
}

func TestWaitersAreReleasedAtTheEnd(t *testing.T) {
	virtual(t, func(t *testing.T) {
		for _, tt := range []struct {
			name string
			end  func(b *bench, cancel func())
			want func(error) bool
		}{
			{"canceled", func(_ *bench, cancel func()) { cancel() }, func(err error) bool { return errors.Is(err, ErrClosed) }},
			{"failed", func(b *bench, _ func()) {
				b.fetcher.script[1] = []error{ErrGone}
				close(b.fetcher.hang)
			}, func(err error) bool { return errors.Is(err, ErrGone) }},
		} {
			b := newBench(t, Config{Items: items(2, 10), Size: 10, Epochs: 1})
			b.fetcher.hang = make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			ended := b.start(ctx)
			got := make(chan error, 1)
			go func() {
				for {
					l, err := b.Lease(t.Context(), LeaseRequest{Reader: "r", Wait: time.Hour})
					if err != nil {
						got <- err
						return
					}
					b.ok(b.Ack(l.ID))
				}
			}()
			time.Sleep(time.Second)
			tt.end(b, cancel)
			if err := <-got; !tt.want(err) {
				t.Errorf("%s: Lease got %v", tt.name, err)
			}
			if err := <-ended; err == nil {
				t.Errorf("%s: Run got nil, want an error", tt.name)
			}
			cancel()
		}
	})
}

func TestCanceledWaitTakesNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(1, 10), Size: 10, Epochs: 1})
		b.fetcher.hang = make(chan struct{})
		b.start(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error)
		go func() {
			_, err := b.Lease(ctx, LeaseRequest{Reader: "gone", Wait: time.Hour})
			got <- err
		}()
		time.Sleep(time.Second)
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want canceled", err)
		}
		close(b.fetcher.hang)
		if l := b.must(b.Lease(t.Context(), LeaseRequest{Reader: "r", Wait: time.Hour})); l.Attempt != 1 {
			t.Errorf("got attempt %d, want 1", l.Attempt)
		}
	})
}

func BenchmarkLeaseAndAck(bm *testing.B) {
	cfg := Config{Input: "train", Items: items(26, 100), Size: 10_000, Manifest: "p", Dir: bm.TempDir(), Parallel: 8}
	cfg.Fetcher = &fake{items: listOf(cfg)}
	w, err := New(cfg)
	if err != nil {
		bm.Fatal(err)
	}
	defer w.Close()
	// One position, delivered and acknowledged without removal of its file: the cost of the hot
	// path without the background work.
	w.spawn, w.flush = func(f func()) { f() }, func(f func()) { f() }
	for range 100 {
		w.mu.Lock()
		t := w.plan(time.Now())
		w.mu.Unlock()
		w.act(bm.Context(), t)
	}
	for bm.Loop() {
		l, err := w.Lease(bm.Context(), LeaseRequest{Reader: "r", Bound: true})
		if err != nil {
			var end *EndError
			if errors.As(err, &end) {
				continue
			}
			bm.StopTimer()
			for range 10 {
				w.mu.Lock()
				t := w.plan(time.Now())
				w.mu.Unlock()
				w.act(bm.Context(), t)
			}
			bm.StartTimer()
			continue
		}
		if err := w.Ack(l.ID); err != nil {
			bm.Fatal(err)
		}
	}
}

package window

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// drink makes readers lease shards and hold each for a while.
func (b *bench) drink(ctx context.Context, keep time.Duration, readers ...string) {
	for _, name := range readers {
		go func() {
			for ctx.Err() == nil {
				l, err := b.Lease(ctx, LeaseRequest{Reader: name, Wait: time.Hour, Bound: true})
				if err != nil {
					continue
				}
				time.Sleep(keep)
				if err := b.Ack(l.ID); err != nil {
					b.t.Error(err)
				}
			}
		}()
	}
}

// The status names the cause of readers' waits, with the numbers that show it and what to change.
func TestStatusExplainsStarvation(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		cause   Cause
		cfg     Config
		fetcher func(f *fake)
		free    int64
		keep    time.Duration
		readers []string
		waited  int // how many of them waited; 0: all
		words   []string
	}{
		{
			cause: CauseBackend, cfg: Config{Items: items(50, mib), Size: 8 * mib, Parallel: 2},
			fetcher: func(f *fake) { f.silent, f.flow = 9*time.Second, time.Second },
			readers: []string{"a", "b"}, keep: time.Second,
			words: []string{
				"2 readers waited 115 s in the last 63.5 s, ", " s of it for the store", "a fetch takes 10 s, of which 9 s until the first byte", "0 of 12 failed",
				"with 2 in parallel", "KiB/s were received and readers used", "Raise parallel",
			},
		},
		{
			cause: CauseNetwork, cfg: Config{Items: items(50, mib), Size: 8 * mib, Parallel: 2},
			fetcher: func(f *fake) { f.silent, f.flow = time.Second, 9*time.Second },
			readers: []string{"a", "b"}, keep: time.Second,
			words: []string{"for the network", "a fetch takes 10 s, of which 1 s until the first byte", "KiB/s were received", "Raise limits.bandwidth"},
		},
		{
			cause: CauseDisk, cfg: Config{Items: items(50, mib), Size: 8 * mib, MinFree: 30 * mib},
			free: 20 * mib, readers: []string{"a"},
			words: []string{"for the disk: 20 MiB were free, minFree reserves 30 MiB", "the next shard has 1.0 MiB", "lower minFree"},
		},
		{
			cause: CauseBudget, cfg: Config{Items: items(50, mib), Size: 2 * mib},
			readers: []string{"a", "b", "c"}, keep: 10 * time.Second, waited: 2, // one may always be first to ask again
			words: []string{"for space in the window: of its size of 2.0 MiB, readers held 2.0 MiB in 2 shards (", "the next shard has 1.0 MiB. Raise size to 10 MiB"},
		},
		{
			cause: CauseReaders, cfg: Config{Items: items(2, mib), Size: 8 * mib},
			readers: []string{"a", "b", "idle"}, keep: time.Hour, waited: 1,
			words: []string{"1 reader waited 63.5 s in the last 63.5 s, 63.5 s of it for other readers: the last 2 shards of the epoch were held by ", " (1), one for ", " s. Check the reader that holds a shard longest"},
		},
	} {
		t.Run(string(tt.cause), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				b := newBench(t, tt.cfg)
				if tt.fetcher != nil {
					tt.fetcher(b.fetcher)
				}
				if tt.free > 0 {
					b.free = func() (int64, error) { return tt.free, nil }
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				b.start(ctx)
				b.drink(ctx, tt.keep, tt.readers...)
				time.Sleep(63500 * time.Millisecond) // an instant without other events
				s := b.Status().Starvation
				if want := cmp.Or(tt.waited, len(tt.readers)); s == nil || s.Cause != tt.cause || s.Readers < want || s.Readers > len(tt.readers) {
					t.Fatalf("got %+v, want %d or more readers that wait for %s", s, want, tt.cause)
				}
				for _, words := range tt.words {
					if !strings.Contains(s.Words, words) {
						t.Errorf("got %q, want %q in it", s.Words, words)
					}
				}
				cancel()
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// A few minutes after the last wait, the status reports none.
func TestStatusOmitsStarvationWithoutWaits(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(4, 10), Size: 40})
		b.fetcher.silent = 10 * time.Second
		ctx, cancel := context.WithCancel(t.Context())
		b.start(ctx)
		b.drink(ctx, 5*time.Minute, "a")
		time.Sleep(20 * time.Second)
		if b.Status().Starvation == nil {
			t.Error("nothing is said of a reader that waited for 10 of 20 seconds")
		}
		time.Sleep(20 * time.Minute)
		if s := b.Status().Starvation; s != nil {
			t.Errorf("got %+v, want nothing: its reader has not waited for long", s)
		}
		cancel()
		time.Sleep(2 * time.Hour)
	})
}

// Starvation of minutes appeared in the status, but never in the log.
func TestStarvationIsLoggedOnceInAPeriod(t *testing.T) {
	virtual(t, func(t *testing.T) {
		log := &lockedBuffer{}
		b := newBench(t, Config{Items: items(50, 1<<20), Size: 8 << 20, Log: slog.New(slog.NewTextHandler(log, nil))})
		b.fetcher.silent = time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		b.start(ctx)
		b.drink(ctx, time.Second, "a")
		count := func() int {
			return strings.Count(log.String(), `msg="readers wait for data" input=train cause=backend`)
		}
		time.Sleep(50 * time.Second)
		if got := count(); got != 0 {
			t.Errorf("%d lines after 50 s, want none", got)
		}
		time.Sleep(30 * time.Second)
		if got := count(); got != 1 {
			t.Errorf("%d lines after 80 s, want 1: %s", got, log)
		}
		time.Sleep(20 * time.Minute)
		if got := count(); got < 3 || got > 5 {
			t.Errorf("%d lines after 21 min, want one in each 5 min", got)
		}
		cancel()
		time.Sleep(2 * time.Hour)
	})
}

// lockedBuffer is a log that can be read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

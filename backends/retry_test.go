package backends_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
)

// bench is a store over memory with scripted faults.
type bench struct {
	*backends.Store
	mem    *mem.Backend
	faults *conformance.Faults
}

func newBench(opts backends.Options) bench {
	b := bench{mem: mem.New(), faults: new(conformance.Faults)}
	b.Store = backends.NewStore(b.faults.Wrap(b.mem), "mem://test", opts)
	return b
}

// into is a destination whose writes the test controls.
type into func(p []byte, off int64) (int, error)

func (f into) WriteAt(p []byte, off int64) (int, error) { return f(p, off) }

// buffer is a destination in memory.
func buffer(p []byte) into {
	return func(q []byte, off int64) (int, error) { return copy(p[off:], q), nil }
}

func TestRetryByErrorKind(t *testing.T) {
	for _, tt := range []struct {
		kind  backends.Kind
		tries int // 0: more than the limit for Unknown
	}{
		{backends.Unknown, 5},
		{backends.NotExist, 1},
		{backends.Exist, 1},
		{backends.Permission, 1},
		{backends.Invalid, 1},
		{backends.Changed, 1},
		{backends.Corrupt, 1},
		{backends.NoSpace, 1},
		{backends.Unsupported, 1},
		{backends.Throttled, 0},
		{backends.Unavailable, 0},
		{backends.Canceled, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(backends.Options{})
			b.faults.Always(conformance.Stat, conformance.Fail(tt.kind))
			start := time.Now()
			_, err := b.Stat(t.Context(), "k")
			if got := backends.KindOf(err); got != tt.kind {
				t.Errorf("got kind %s (%v), want %s", got, err, tt.kind)
			}
			tries, took := len(b.faults.Calls(conformance.Stat)), time.Since(start)
			if tt.tries > 0 && tries != tt.tries || tt.tries == 0 && tries < 10 {
				t.Errorf("%s was tried %d times, want %d (0: many)", tt.kind, tries, tt.tries)
			}
			if took > backends.DefaultRetryFor {
				t.Errorf("%s was tried for %v, want at most %v", tt.kind, took, backends.DefaultRetryFor)
			}
			if said := strings.Contains(fmt.Sprint(err), "gave up after"); said != (tries > 1) {
				t.Errorf("after %d tries of %s the error is %q; it says that they were given up: %v", tries, tt.kind, err, said)
			}
			if !strings.HasPrefix(fmt.Sprint(err), "stat mem://test k: ") {
				t.Errorf("the error %q does not begin with what was tried, where and on what", err)
			}
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(backends.Options{})
		b.mem.Put("k", nil)
		b.faults.Add(conformance.Stat, conformance.FailWith(
			&backends.Error{Kind: backends.Throttled, RetryAfter: 42 * time.Second, Err: errors.New("slow down")}))
		start := time.Now()
		if _, err := b.Stat(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 42*time.Second {
			t.Errorf("the second try came after %v, want 42s", took)
		}
	})
}

func TestReadResumesWhereItBroke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 3<<20 + 5
		b := newBench(backends.Options{})
		obj := b.mem.Generate("k", size)
		b.faults.Add(conformance.Read, conformance.Cut(0), conformance.Cut(1), conformance.Cut(2<<20+1),
			conformance.Fail(backends.Throttled), conformance.Break(7, errors.New("connection reset")))
		got, h := make([]byte, size), backends.CRC64NVME.New()
		reported, err := b.ReadRange(t.Context(), obj, 0, -1, buffer(got), h)
		if err != nil {
			t.Fatal(err)
		}
		want := conformance.ContentsOf("k", size)
		if string(got) != string(want.Bytes()) {
			t.Error("the bytes are not those of the object")
		}
		if sum := backends.SumOf(backends.CRC64NVME, h); sum != want.Sum(backends.CRC64NVME) || reported != sum {
			t.Errorf("summed on the way %v, told %v; want %v", sum, reported, want.Sum(backends.CRC64NVME))
		}
		at := int64(0)
		for i, moved := range []int64{0, 1, 2<<20 + 1, 0, 7, 0} {
			if call := b.faults.Calls(conformance.Read)[i]; call.Off != at || call.N != size-at {
				t.Errorf("request %d is for %d bytes at %d, want %d at %d", i, call.N, call.Off, size-at, at)
			}
			at += moved
		}
	})
}

func TestProgressRenewsPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 100
		b := newBench(backends.Options{RetryFor: 3 * time.Second})
		obj := b.mem.Generate("k", size)
		down := conformance.Fail(backends.Unavailable)
		for range size - 1 { // each byte takes about a second
			b.faults.Add(conformance.Read, down, down, down, conformance.Cut(1))
		}
		start := time.Now()
		if _, err := b.ReadRange(t.Context(), obj, 0, size, buffer(make([]byte, size)), nil); err != nil {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		if took := time.Since(start); took < 30*time.Second {
			t.Errorf("the test took %v, which shows nothing", took)
		}
	})
}

func TestWatchdogCutsAndResumesStalledStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(backends.Options{StallAfter: 10 * time.Second})
		obj := b.mem.Generate("k", 1000)
		b.faults.Add(conformance.Read, conformance.Stall(600), conformance.Stall(0), conformance.Hang())
		got := make([]byte, 1000)
		start := time.Now()
		if _, err := b.ReadRange(t.Context(), obj, 0, 1000, buffer(got), nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 30*time.Second || took > 32*time.Second {
			t.Errorf("three stalls of 10s took %v", took)
		}
		if string(got) != string(conformance.ContentsOf("k", 1000).Bytes()) {
			t.Error("the bytes are not those of the object")
		}
		b.faults.Always(conformance.Stat, conformance.Hang())
		if _, err := b.Stat(t.Context(), "k"); backends.KindOf(err) != backends.Unavailable {
			t.Errorf("a stat that hangs for ever: got %v, want kind unavailable", err)
		}
	})
}

// slowBytes is a backend whose streams slowly return one byte at a time.
type slowBytes struct {
	backends.Backend
	pause time.Duration
}

type trickling struct {
	io.ReadCloser
	pause time.Duration
}

func (b slowBytes) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	body, err := b.Backend.OpenRange(ctx, obj, off, n)
	return trickling{body, b.pause}, err
}

func (r trickling) Read(p []byte) (int, error) {
	time.Sleep(r.pause)
	return r.ReadCloser.Read(p[:1])
}

// A slow transfer that is not silent is not cancelled, whether the store, the disk or the limit is
// slow.
func TestWatchdogAllowsSlowStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mem.New()
		obj := m.Generate("k", 50)
		s := backends.NewStore(slowBytes{m, 20 * time.Second}, "mem://test", backends.Options{})
		got := make([]byte, 50)
		if _, err := s.ReadRange(t.Context(), obj, 0, 50, buffer(got), nil); err != nil {
			t.Errorf("a byte every 20s: %v", err)
		}

		b := newBench(backends.Options{})
		big := b.mem.Generate("big", 5<<20)
		slowDisk := into(func(p []byte, _ int64) (int, error) {
			time.Sleep(time.Minute)
			return len(p), nil
		})
		if _, err := b.ReadRange(t.Context(), big, 0, -1, slowDisk, nil); err != nil {
			t.Errorf("a disk that takes a minute for each block: %v", err)
		}

		limited := newBench(backends.Options{Bandwidth: rate.NewLimiter(10_000, 10_000)})
		big = limited.mem.Generate("big", 2<<20)
		start := time.Now()
		if _, err := limited.ReadRange(t.Context(), big, 0, -1, buffer(make([]byte, 2<<20)), nil); err != nil {
			t.Errorf("10 kB a second: %v", err)
		}
		if took := time.Since(start); took < 200*time.Second {
			t.Errorf("2 MiB at 10 kB a second took %v", took)
		}
		if _, err := limited.Put(t.Context(), "up", conformance.ContentsOf("up", 2<<20), 2<<20, backends.CreateOptions{}); err != nil {
			t.Errorf("putting at 10 kB a second: %v", err)
		}
		for _, b := range []bench{b, limited} {
			if n := len(b.faults.Calls(conformance.Read)); n != 1 {
				t.Errorf("%d requests were made, want 1", n)
			}
		}
	})
}

func TestRetrySkipsLimitBeyondTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(backends.Options{Bandwidth: rate.NewLimiter(1, 1)})
		obj := b.mem.Generate("k", 1000)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := b.ReadRange(ctx, obj, 0, -1, buffer(make([]byte, 1000)), nil)
		if backends.KindOf(err) != backends.Canceled {
			t.Errorf("got %v, want kind canceled", err)
		}
	})
}

func TestRetryPauseEndsOnCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(backends.Options{})
		b.faults.Always(conformance.Stat, conformance.FailWith(
			&backends.Error{Kind: backends.Throttled, RetryAfter: time.Minute, Err: errors.New("slow down")}))
		why := errors.New("the pod is going away")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		start := time.Now()
		_, err := b.Stat(ctx, "k")
		if took := time.Since(start); took != time.Second || backends.KindOf(err) != backends.Canceled || !errors.Is(err, why) {
			t.Errorf("after %v: got %v, want kind canceled with its cause after 1s", took, err)
		}
	})
}

func TestLocalErrorsAreNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(backends.Options{})
		obj := b.mem.Generate("k", 100)
		var local *backends.LocalError
		full := into(func([]byte, int64) (int, error) { return 0, syscall.ENOSPC })
		if _, err := b.ReadRange(t.Context(), obj, 0, 100, full, nil); !errors.As(err, &local) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("reading onto a full disk: got %v, want a LocalError of ENOSPC", err)
		}
		if n := len(b.faults.Calls(conformance.Read)); n != 1 {
			t.Errorf("reading onto a full disk was tried %d times, want once", n)
		}
		streams := backends.NewStore(struct{ backends.Backend }{b.mem}, "mem://test", backends.Options{})
		for _, s := range []*backends.Store{b.Store, streams} {
			for _, src := range []io.ReaderAt{failing{}, strings.NewReader("too short")} {
				_, err := s.Put(t.Context(), "new", src, 100, backends.CreateOptions{})
				if !errors.As(err, &local) {
					t.Errorf("putting from %T: got %v, want a LocalError", src, err)
				}
			}
		}
		if got := b.mem.Keys(); len(got) != 1 || b.mem.Writers() != 0 {
			t.Errorf("after failed writes there are %q and %d open writers, want k and none", got, b.mem.Writers())
		}
	})
}

// failing is a broken disk.
type failing struct{}

func (failing) ReadAt([]byte, int64) (int, error) { return 0, syscall.EIO }

func TestRetryGivesUpWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(backends.Options{})
		for range 1000 {
			b.faults.Add(conformance.Commit, conformance.Fail(backends.Unavailable))
		}
		start := time.Now()
		whole := struct{ backends.Backend }{backendOf(b)} // without parts only commits are retried
		_, err := backends.NewStore(whole, "mem://test", backends.Options{}).PutBytes(t.Context(), "k", make([]byte, 1000), backends.CreateOptions{})
		if took := time.Since(start); backends.KindOf(err) != backends.Unavailable || took > backends.DefaultRetryFor {
			t.Errorf("got %v after %v, want kind unavailable within %v", err, took, backends.DefaultRetryFor)
		}
	})
}

func backendOf(b bench) backends.Backend {
	backend, _ := b.Backend()
	return backend
}

// sending is a protocol that sends its bytes in Commit, invisible to the Store. All bytes arrive,
// then the store fails.
type sending struct{ backends.Backend }

func (s sending) CreateParts(context.Context, string, backends.CreateOptions) (backends.PartWriter, error) {
	return sendingParts{}, nil
}

type sendingParts struct{}

func (sendingParts) WritePart(context.Context, int64, *backends.Part) error { return nil }
func (sendingParts) Abort() error                                           { return nil }

func (sendingParts) Commit(ctx context.Context) (backends.Object, error) {
	for range 3 {
		time.Sleep(20 * time.Second) // in virtual time; longer in total than the stall timeout
		backends.Moved(ctx)
	}
	return backends.Object{}, backends.Errorf(backends.Unavailable, "commit", "", "the store failed")
}

func TestWatchdogCountsProtocolBytesAsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := backends.NewStore(sending{mem.New()}, "mem://test", backends.Options{})
		start := time.Now()
		_, err := store.PutBytes(t.Context(), "k", make([]byte, 1000), backends.CreateOptions{})
		took := time.Since(start)
		if backends.KindOf(err) != backends.Unavailable || took < time.Minute || took > backends.DefaultRetryFor+2*time.Minute {
			t.Errorf("got %v after %v, want kind unavailable of the store, not of the watchdog, and no more tries than its patience", err, took)
		}
	})
}

// busy is a store whose first answer takes minutes, and whose second one is a failure.
type busy struct {
	backends.Backend
	asked chan int
}

func (b busy) Stat(ctx context.Context, key string) (backends.Object, error) {
	n := <-b.asked + 1
	b.asked <- n
	switch n {
	case 1:
		time.Sleep(3 * time.Minute)
	case 2:
		return backends.Object{}, backends.Errorf(backends.Unavailable, "stat", key, "try again")
	}
	return b.Backend.Stat(ctx, key)
}

// A request that waited for its turn for longer than its patience was given up after one attempt.
func TestPatienceBeginsWithTheFirstAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := busy{mem.New(), make(chan int, 1)}
		back.asked <- 0
		back.Backend.(*mem.Backend).Put("x", []byte("1"))
		store := backends.NewStore(back, "mem://test", backends.Options{Connections: 1, RetryFor: time.Minute, StallAfter: time.Hour})
		ended := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := store.Stat(t.Context(), "x")
				ended <- err
			}()
			synctest.Wait()
		}
		for range 2 {
			if err := <-ended; err != nil {
				t.Errorf("got %v, want that it is tried again", err)
			}
		}
	})
}

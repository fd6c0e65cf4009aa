package backends_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
)

func TestListResumesWithoutRepeating(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(backends.Options{})
		var want []string
		for i := range 9 {
			want = append(want, fmt.Sprint(i))
			b.mem.Put("d/"+want[i], nil)
		}
		b.faults.Add(conformance.List, conformance.Cut(0), conformance.Cut(3), conformance.Cut(3),
			conformance.Stall(5), conformance.Break(8, errors.New("reset")))
		var got []string
		for obj, err := range b.Sub("d").List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, obj.Key)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if b.faults.Left() > 0 {
			t.Errorf("%d faults were not met", b.faults.Left())
		}
	})
}

// A listing that always breaks at the same place makes no progress.
func TestListGivesUpAfterRepeatedBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(backends.Options{})
		for i := range 9 {
			b.mem.Put(fmt.Sprint(i), nil)
		}
		b.faults.Always(conformance.List, conformance.Break(5, backends.Errorf(backends.Unavailable, "", "", "reset")))
		n, last := 0, error(nil)
		for _, err := range b.List(t.Context(), "") {
			if last = err; err == nil {
				n++
			}
		}
		if n != 5 || backends.KindOf(last) != backends.Unavailable {
			t.Errorf("got %d objects and %v, want 5 and kind unavailable", n, last)
		}
	})
}

func TestListWaitsForItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(backends.Options{Connections: 1})
		for i := range 5 {
			b.mem.Put(fmt.Sprint(i), []byte("x"))
		}
		n := 0
		for obj, err := range b.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Minute) // longer than any timeout
			if _, _, err := b.ReadAll(t.Context(), obj.Key, 1); err != nil {
				t.Errorf("reading with the only connection while listing: %v", err)
			}
			n++
		}
		if calls := len(b.faults.Calls(conformance.List)); n != 5 || calls != 1 {
			t.Errorf("%d objects in %d calls, want 5 in one", n, calls)
		}
	})
}

// unsorted is a store that violates the order of List.
type unsorted struct{ backends.Backend }

func (unsorted) List(context.Context, string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		_ = yield(backends.Object{Key: "b"}, nil) && yield(backends.Object{Key: "a"}, nil)
	}
}

func TestListOutOfOrderIsAnError(t *testing.T) {
	var last error
	for _, err := range backends.NewStore(unsorted{mem.New()}, "x://y", backends.Options{}).List(t.Context(), "") {
		last = err
	}
	if backends.KindOf(last) != backends.Corrupt {
		t.Errorf("got %v, want kind corrupt: keys would be lost", last)
	}
}

func TestSemaphoreSlotsAreReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(backends.Options{Connections: 2})
		b.mem.Put("k", nil)
		b.faults.Always(conformance.Stat, conformance.Slow(time.Second))
		start := time.Now()
		done := make(chan error)
		for range 6 {
			go func() { _, err := b.Sub("").Stat(t.Context(), "k"); done <- err }()
		}
		for range 6 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("6 requests of 1s over 2 connections took %v, want 3s", took)
		}
	})
}

func TestObjectThatEndsEarlyIsCorrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(backends.Options{})
		obj := b.mem.Put("k", make([]byte, 100))
		obj.Size = 200
		_, err := b.ReadRange(t.Context(), obj, 0, 200, buffer(make([]byte, 200)), nil)
		if backends.KindOf(err) != backends.Corrupt || !strings.Contains(fmt.Sprint(err), "100 of 200 bytes") {
			t.Errorf("got %v, want kind corrupt and both sizes", err)
		}
		// An unreachable store is not a corrupt one.
		b.faults.Always(conformance.Read, conformance.Fail(backends.Unavailable))
		if _, err := b.ReadRange(t.Context(), obj, 0, 100, buffer(make([]byte, 100)), nil); backends.KindOf(err) != backends.Unavailable {
			t.Errorf("got %v, want kind unavailable", err)
		}
	})
}

// s3proxy, and web servers whose versions are no strong ETags, look at the range before the version.
// An object that was replaced by a shorter one while it was read was reported as corrupt, and a job
// ended with 76 instead of 75.
func TestReadOfAnObjectThatShrinksIsChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mem.New()
		s := backends.NewStore(rangeFirst{m}, "mem://test", backends.Options{})
		old := m.Put("k", make([]byte, 100))
		read := func(off int64) error {
			_, err := s.ReadRange(t.Context(), old, off, 100-off, buffer(make([]byte, 100)), nil)
			return err
		}
		longer := old
		longer.Size = 200
		if _, err := s.ReadRange(t.Context(), longer, 150, 50, buffer(make([]byte, 200)), nil); backends.KindOf(err) != backends.Corrupt {
			t.Errorf("a range that the same version does not have: got %v, want kind corrupt", err)
		}
		m.Put("k", make([]byte, 50))
		if err := read(60); backends.KindOf(err) != backends.Changed || !strings.Contains(err.Error(), "it has 50 bytes now, not 100") {
			t.Errorf("a range of a longer version: got %v, want kind changed and both sizes", err)
		}
		if err := s.Delete(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if err := read(60); backends.KindOf(err) != backends.NotExist {
			t.Errorf("a range of what was removed: got %v, want kind not-exist", err)
		}
	})
}

// rangeFirst is a backend that looks at the range of a read before its version.
type rangeFirst struct{ *mem.Backend }

func (b rangeFirst) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	now, err := b.Stat(ctx, obj.Key)
	if err == nil && off >= now.Size {
		return nil, backends.Errorf(backends.Corrupt, "read", obj.Key, "the object ends before byte %d: %w", off, io.ErrUnexpectedEOF)
	}
	return b.Backend.OpenRange(ctx, obj, off, n)
}

func TestReadWithoutAVersionNeverMixes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(backends.Options{})
		b.mem.Put("k", []byte(strings.Repeat("old.", 100)))
		b.faults.Add(conformance.Read, conformance.Meanwhile(100, func() { b.mem.Put("k", []byte(strings.Repeat("new.", 100))) }))
		cut := b.faults.Wrap(struct{ backends.Backend }{b.mem})
		s := backends.NewStore(cutting{cut}, "mem://test", backends.Options{})
		got := make([]byte, 400)
		_, err := s.ReadRange(t.Context(), backends.Object{Key: "k", Size: 400}, 0, 400, buffer(got), nil)
		if backends.KindOf(err) != backends.Changed {
			t.Errorf("got %v and %.8q…%s, want kind changed", err, got, got[392:])
		}
	})
}

// cutting is a backend whose streams all end after 200 bytes.
type cutting struct{ backends.Backend }

func (b cutting) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	return b.Backend.OpenRange(ctx, obj, off, min(n, 200))
}

// An object that the backend sends in Commit is written in one attempt, which needs one permit and one
// stall detector; three of each cost more than the request itself.
func TestPutOfOneRequestIsOneAttempt(t *testing.T) {
	for _, tt := range []struct {
		oneRequest, size int64
		want             string
	}{
		{0, 0, "commit 1 create 1"},
		{0, 10, "commit 1 create 1 write 1"},
		{10, 0, "commit 1"},
		{10, 10, "commit 1"},
		{10, 11, "commit 1 create 1 write 1"},
		{10, 200, "commit 1 create 1 write 4"},
		{300, 51, "commit 1 create 1 write 2"}, // more than a part
	} {
		reg := prometheus.NewRegistry()
		m := mem.NewWith(backends.Capabilities{Parallelism: 1, PartSize: 50, OneRequest: tt.oneRequest})
		store := backends.NewStore(m, "mem://test", backends.Options{Metrics: backends.NewMetrics(reg)})
		if _, err := store.PutBytes(t.Context(), "k", make([]byte, tt.size), backends.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		var got []string
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "stager_store_requests_total" {
				continue
			}
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "op" {
						got = append(got, fmt.Sprint(l.GetValue(), " ", m.GetCounter().GetValue()))
					}
				}
			}
		}
		slices.Sort(got)
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("%d bytes where %d are one request: got attempts %q, want %q", tt.size, tt.oneRequest, got, tt.want)
		}
	}
}

// Every sequence of up to three failures of the calls of a Put, each before the call or after it with
// the response lost, ends with one version of the object.
func TestPutAfterFailures(t *testing.T) {
	calls := []conformance.Op{conformance.Create, conformance.Write, conformance.Commit}
	for _, oneRequest := range []int64{0, 10} {
		for sequence := range 512 { // three digits, each an operation or none, and whether its response is lost
			var faults []string
			synctest.Test(t, func(t *testing.T) {
				b := bench{mem: mem.NewWith(backends.Capabilities{Parallelism: 2, PartSize: 50, OneRequest: oneRequest}), faults: new(conformance.Faults)}
				b.Store = backends.NewStore(b.faults.Wrap(b.mem), "mem://test", backends.Options{})
				for rest := sequence; rest > 0; rest /= 8 {
					i, lost := rest%4, rest%8 >= 4
					if i == 3 {
						continue
					}
					fault, how := conformance.Fail(backends.Unavailable), "fails"
					if lost {
						fault, how = conformance.Lost(backends.Unavailable), "is lost"
					}
					b.faults.Add(calls[i], fault)
					faults = append(faults, fmt.Sprint(calls[i], " ", how))
				}
				obj, err := b.PutBytes(t.Context(), "k", []byte("contents"), backends.CreateOptions{IfAbsent: true})
				data, _ := b.mem.Get("k")
				if err != nil || obj.Version != "1" || obj.Key != "k" || string(data) != "contents" {
					t.Errorf("%d bytes are one request, %v: got %q in %+v, %v; want the one version that was made", oneRequest, faults, data, obj, err)
				}
			})
		}
	}
}

func TestReadAllIsLimited(t *testing.T) {
	b := newBench(backends.Options{})
	b.mem.Generate("k", 1<<50)
	if _, _, err := b.ReadAll(t.Context(), "k", 1000); backends.KindOf(err) != backends.Invalid {
		t.Errorf("a petabyte into memory: got %v, want kind invalid", err)
	}
	for _, r := range [][2]int64{{-1, 5}, {1<<50 + 1, -1}} {
		obj := backends.Object{Key: "k", Size: 1 << 50}
		if _, err := b.ReadRange(t.Context(), obj, r[0], r[1], buffer(nil), nil); backends.KindOf(err) != backends.Invalid {
			t.Errorf("%d bytes at %d: got %v, want kind invalid", r[1], r[0], err)
		}
	}
}

func TestErrorsAreThoseOfFS(t *testing.T) {
	for _, tt := range []struct {
		kind backends.Kind
		is   error
	}{{backends.NotExist, fs.ErrNotExist}, {backends.Exist, fs.ErrExist}, {backends.Permission, fs.ErrPermission}} {
		err := fmt.Errorf("outside: %w", backends.Errorf(tt.kind, "stat", "k", "inside"))
		for _, other := range []error{fs.ErrNotExist, fs.ErrExist, fs.ErrPermission} {
			if got := errors.Is(err, other); got != (other == tt.is) {
				t.Errorf("errors.Is of kind %s and %v = %v", tt.kind, other, got)
			}
		}
		if got := backends.KindOf(err); got != tt.kind {
			t.Errorf("KindOf(%v) = %s, want %s", err, got, tt.kind)
		}
		if got := backends.KindOf(fmt.Errorf("bare: %w", tt.is)); got != tt.kind {
			t.Errorf("KindOf of a bare %v = %s, want %s", tt.is, got, tt.kind)
		}
	}
	for _, err := range []error{context.Canceled, context.DeadlineExceeded} {
		if got := backends.KindOf(err); got != backends.Canceled {
			t.Errorf("KindOf(%v) = %s, want canceled", err, got)
		}
	}
	err := &backends.Error{Op: "read", Store: "s3://b", Key: "a\nb", Err: errors.New("no")}
	if got, want := err.Error(), `read s3://b "a\nb": no`; got != want {
		t.Errorf("got %s, want %s: a key must not break the log", got, want)
	}
}

// sweeping is a Sweeper whose sweep lasts until the function returns.
type sweeping struct {
	*mem.Backend
	during func()
}

func (b sweeping) Sweep(context.Context, string, func(backends.Orphan) bool) error {
	b.during()
	return nil
}

// A sweep may take as long as a listing. It must not hold the only permit.
func TestSweepHoldsNoPermit(t *testing.T) {
	b := sweeping{mem.New(), nil}
	var s *backends.Store
	b.during = func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.PutBytes(ctx, "a", nil, backends.CreateOptions{}); err != nil {
			t.Errorf("during a sweep: %v", err)
		}
	}
	s = backends.NewStore(b, "mem://test", backends.Options{Connections: 1})
	if err := s.Sweep(t.Context(), "", func(backends.Orphan) bool { return false }); err != nil {
		t.Error(err)
	}
}

func TestRequestWaitsForItsTurn(t *testing.T) {
	b := mem.New()
	b.Put("a", nil)
	s := backends.NewStore(b, "mem://test", backends.Options{Connections: 1})
	turns := 0
	after := s.After(func(ctx context.Context) error {
		turns++
		_, err := s.Stat(ctx, "a") // the only permit is free meanwhile
		return err
	})
	if _, err := after.Stat(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	for _, err := range after.List(t.Context(), "") {
		if err != nil {
			t.Error(err)
		}
	}
	if turns != 2 {
		t.Errorf("waited %d times, want once for each of 2 requests", turns)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stuck := s.After(func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if err := stuck.Delete(ctx, "a"); backends.KindOf(err) != backends.Canceled {
		t.Errorf("got %v, want the error of the context", err)
	}
	if _, ok := b.Get("a"); !ok {
		t.Error("the request was sent before its turn")
	}
}

func TestBandwidthOfStore(t *testing.T) {
	for _, limit := range []rate.Limit{0, 5, rate.Inf} {
		opts := backends.Options{}
		if limit > 0 {
			opts.Bandwidth = rate.NewLimiter(limit, 1)
		}
		got, limited := backends.NewStore(mem.New(), "mem://test", opts).Sub("x").Bandwidth()
		if limited != (limit == 5) || limited && got != 5 {
			t.Errorf("limit %v: got %v, %t", limit, got, limited)
		}
	}
}

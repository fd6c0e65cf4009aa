package check

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
)

// Approximate duration of each measurement; all together stay within 15 s.
const (
	forBytes = 2 * time.Second
	forTiny  = 1500 * time.Millisecond
	forStats = time.Second
)

// Sizes of the files that are written for measuring, in bytes.
const (
	TinyBytes  = 50 << 10
	leastFile  = 4 << 20
	largest    = 1 << 30 // of one file, and of all files of one measurement
	mostTiny   = 2000
	mostStats  = 50
	leastTinys = 8 // with fewer files the result is meaningless
)

// measure sets report.Speed.
func (r *run) measure(ctx context.Context, there []backends.Object) error {
	if r.report.ReadOnly {
		return r.measureThere(ctx, there)
	}
	return r.measureOwn(ctx)
}

// measureOwn writes files and reads them.
func (r *run) measureOwn(ctx context.Context) error {
	s := &r.report.Speed
	alone := r.scratch.Narrow(1)
	one, rate, err := r.writeOne(ctx, alone)
	if err != nil {
		return err
	}
	s.One = Rate{Requests: 1, FileBytes: one.Size, Write: rate}
	if s.One.Read, _, _, err = read(ctx, alone, pieces([]backends.Object{one}, one.Size), forBytes, true); err != nil {
		return err
	}
	if err := alone.Delete(ctx, one.Key); err != nil { // because it is large
		return err
	}

	size := min(max(int64(rate/4), leastFile/16), r.Store.Capabilities().PartSize, largest/int64(r.connections))
	many, rate, n, err := write(ctx, r.scratch, "many", size, int(largest/size), forBytes)
	if err != nil {
		return err
	}
	s.Many = Rate{Requests: n, FileBytes: size, Write: rate * float64(size)}
	if err = s.Many.readOf(ctx, r.scratch, pieces(many, size), true); err != nil {
		return err
	}

	tiny, rate, n, err := write(ctx, r.scratch, "tiny", TinyBytes, mostTiny, forTiny)
	if err != nil {
		return err
	}
	s.Tiny = Rate{Requests: n, FileBytes: TinyBytes, Write: rate * TinyBytes}
	if s.Tiny.Read, _, n, err = read(ctx, r.scratch, pieces(tiny, TinyBytes), forTiny, true); err != nil {
		return err
	}
	s.Tiny.Requests = max(s.Tiny.Requests, n)
	return r.latency(ctx, alone, tiny)
}

// measureThere reads existing objects.
func (r *run) measureThere(ctx context.Context, there []backends.Object) (err error) {
	s := &r.report.Speed
	alone := r.Store.Narrow(1)
	by := slices.SortedFunc(slices.Values(there), func(a, b backends.Object) int { return int(min(max(b.Size-a.Size, -1), 1)) })
	by = slices.DeleteFunc(by, func(obj backends.Object) bool { return obj.Size == 0 })
	if len(by) > 0 {
		one := by[0]
		s.One = Rate{Requests: 1, FileBytes: one.Size}
		if r.Size > 0 {
			one.Size = min(one.Size, r.Size)
		}
		if s.One.Read, _, _, err = read(ctx, alone, pieces([]backends.Object{one}, one.Size), forBytes, false); err != nil {
			return err
		}
		var sum int64
		for _, obj := range by {
			sum += obj.Size
		}
		s.Many = Rate{FileBytes: sum / int64(len(by))}
		if err = s.Many.readOf(ctx, r.Store, pieces(by, r.Store.Capabilities().PartSize), false); err != nil {
			return err
		}
		tiny := slices.DeleteFunc(by, func(obj backends.Object) bool { return obj.Size > 1<<20 })
		if len(tiny) >= leastTinys {
			var files float64
			if s.Tiny.Read, files, s.Tiny.Requests, err = read(ctx, r.Store, pieces(tiny, 1<<20), forTiny, false); err != nil {
				return err
			}
			s.Tiny.FileBytes = int64(s.Tiny.Read / max(files, 1))
		}
	}
	return r.latency(ctx, alone, there)
}

// readOf measures reading, and the processor time that it uses.
func (m *Rate) readOf(ctx context.Context, store *backends.Store, of []piece, compare bool) (err error) {
	began, before := time.Now(), processors()
	var atOnce int
	m.Read, _, atOnce, err = read(ctx, store, of, forBytes, compare)
	m.Requests = max(m.Requests, atOnce)
	m.ReadCPU = (processors() - before).Seconds() / time.Since(began).Seconds()
	return err
}

// processors returns the processor time that this process has used.
func processors() time.Duration {
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// latency measures the duration of Stat, one object after the other.
func (r *run) latency(ctx context.Context, alone *backends.Store, objs []backends.Object) error {
	var took []time.Duration
	for began := time.Now(); len(took) < mostStats && time.Since(began) < forStats; {
		t := time.Now()
		if _, err := alone.Stat(ctx, objs[len(took)%len(objs)].Key); err != nil {
			return err
		}
		took = append(took, time.Since(t))
	}
	slices.Sort(took)
	r.report.Speed.Stat = Latency{len(took), took[len(took)/2].Seconds(), took[len(took)-1].Seconds()}
	return nil
}

// writeOne writes a file with sequential requests. It uses the configured size, or one large enough
// to be measured.
func (r *run) writeOne(ctx context.Context, alone *backends.Store) (obj backends.Object, perSecond float64, err error) {
	size := r.Size
	if size <= 0 {
		size = leastFile
	}
	for {
		began := time.Now()
		if obj, err = alone.Put(ctx, "one", pattern{}, size, backends.CreateOptions{}); err != nil {
			return obj, 0, err
		}
		took := time.Since(began)
		if r.Size > 0 || took > forBytes/2 || size >= largest {
			return obj, float64(size) / took.Seconds(), nil
		}
		size = min(size*int64(min(max(forBytes/max(took, 1), 2), 8)), largest)
	}
}

// keep calls f with 0, 1, 2 … until the time is over or the number of calls is reached, with the
// concurrency that suits the store. It returns the maximum concurrency.
func keep(ctx context.Context, store *backends.Store, often int, during time.Duration, f func(ctx context.Context, i int) error) (atOnce int, err error) {
	pool, ctx := backends.NewWorkerPool(ctx, func() int {
		now := store.Connections()
		atOnce = max(atOnce, now)
		return now
	})
	until := time.Now().Add(during)
	for i := 0; i < often && ctx.Err() == nil && time.Now().Before(until); i++ {
		pool.Go(func() error { return f(ctx, i) })
	}
	ended := ctx.Err()
	err = pool.Wait()
	return atOnce, cmp.Or(err, ended)
}

// write writes files of one size until the time is over. It returns the files per second and the
// concurrency.
func write(ctx context.Context, store *backends.Store, dir string, size int64, most int, during time.Duration) (objs []backends.Object, perSecond float64, atOnce int, err error) {
	var mu sync.Mutex // guards objs
	began := time.Now()
	atOnce, err = keep(ctx, store, most, during, func(ctx context.Context, i int) error {
		obj, err := store.Put(ctx, fmt.Sprintf("%s/%06d", dir, i), pattern{}, size, backends.CreateOptions{})
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		objs = append(objs, obj)
		return nil
	})
	return objs, float64(len(objs)) / time.Since(began).Seconds(), atOnce, err
}

// piece is a range to read.
type piece struct {
	obj    backends.Object
	off, n int64
}

// pieces divides objects into ranges of at most most bytes.
func pieces(objs []backends.Object, most int64) (out []piece) {
	for _, obj := range objs {
		for off := int64(0); off < obj.Size; off += most {
			out = append(out, piece{obj, off, min(most, obj.Size-off)})
		}
	}
	return out
}

// errEnough ends a read when the time is over.
var errEnough = errors.New("time is over")

// read reads pieces repeatedly until the time is over. It returns bytes per second, pieces per
// second, and the concurrency.
func read(ctx context.Context, store *backends.Store, of []piece, during time.Duration, compare bool) (perSecond, piecesPerSecond float64, atOnce int, err error) {
	to := &meter{until: time.Now().Add(during), compare: compare}
	var whole atomic.Int64
	began := time.Now()
	atOnce, err = keep(ctx, store, math.MaxInt, during, func(ctx context.Context, i int) error {
		p := of[i%len(of)]
		_, err := store.ReadRange(ctx, p.obj, p.off, p.n, to, nil)
		switch {
		case errors.Is(err, errEnough):
			return nil
		case err != nil:
			return err
		}
		whole.Add(1)
		return nil
	})
	took := time.Since(began).Seconds()
	if wrong := to.wrong.Load(); err == nil && wrong > 0 {
		err = &backends.Error{Op: "read", Kind: backends.Corrupt, Err: fmt.Errorf("%d blocks differ from what was written", wrong)}
	}
	return float64(to.bytes.Load()) / took, float64(whole.Load()) / took, atOnce, err
}

// meter counts bytes and discards them.
type meter struct {
	until        time.Time
	compare      bool // with the pattern
	bytes, wrong atomic.Int64
}

func (m *meter) WriteAt(p []byte, off int64) (int, error) {
	m.bytes.Add(int64(len(p)))
	for rest := p; m.compare && len(rest) > 0; {
		want := noise()[off%noiseBytes:]
		n := min(len(want), len(rest))
		if !bytes.Equal(want[:n], rest[:n]) {
			m.wrong.Add(1)
			break
		}
		off, rest = off+int64(n), rest[n:]
	}
	if time.Now().After(m.until) {
		return 0, errEnough
	}
	return len(p), nil
}

// pattern is an endless file: it repeats random bytes, which no store can compress.
type pattern struct{}

const noiseBytes = 1 << 20

var noise = sync.OnceValue(func() []byte {
	p := make([]byte, noiseBytes)
	_, _ = rand.NewChaCha8([32]byte{'s', 't', 'a', 'g', 'e', 'r'}).Read(p) // never fails
	return p
})

// ReadAt implements io.ReaderAt.
func (pattern) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		n += copy(p[n:], noise()[(off+int64(n))%noiseBytes:])
	}
	return n, nil
}

var _ io.ReaderAt = pattern{}

// ReadSpeed reads objects of a store repeatedly for a while, with the concurrency that suits it. It
// returns the bytes per second, and the objects, or parts of large objects, per second.
func ReadSpeed(ctx context.Context, store *backends.Store, objs []backends.Object, during time.Duration) (bytesPerSecond, objectsPerSecond float64, err error) {
	of := pieces(objs, store.Capabilities().PartLength(1))
	if len(of) == 0 {
		return 0, 0, errors.New("there are no bytes to read")
	}
	bytesPerSecond, objectsPerSecond, _, err = read(ctx, store, of, during, false)
	return bytesPerSecond, objectsPerSecond, err
}

package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
)

// How long each measurement takes, about; all of them stay within 15 s.
const (
	forBytes = 2 * time.Second
	forTiny  = 1500 * time.Millisecond
	forStats = time.Second
)

// Sizes of what is written to be measured, in bytes.
const (
	TinyBytes  = 50 << 10
	leastFile  = 4 << 20
	largest    = 1 << 30 // in one file, and in all files of one measurement
	mostTiny   = 2000
	mostStats  = 50
	leastTinys = 8 // fewer tell nothing
)

// measure fills in report.Speed.
func (r *run) measure(ctx context.Context, there []backends.Object) error {
	if r.report.ReadOnly {
		return r.measureThere(ctx, there)
	}
	return r.measureOwn(ctx)
}

// measureOwn writes files and reads them.
func (r *run) measureOwn(ctx context.Context) error {
	s := &r.report.Speed
	alone, n := r.scratch.Narrow(1), r.connections
	one, rate, err := r.writeOne(ctx, alone)
	if err != nil {
		return err
	}
	s.One = Rate{Requests: 1, FileBytes: one.Size, Write: rate}
	if s.One.Read, _, err = read(ctx, alone, 1, pieces([]backends.Object{one}, one.Size), forBytes, true); err != nil {
		return err
	}
	if err := alone.Delete(ctx, one.Key); err != nil { // it is large
		return err
	}

	size := min(max(int64(rate/4), leastFile/16), r.Store.Facts().PartSize, largest/int64(n))
	many, rate, err := write(ctx, r.scratch, n, "many", size, int(largest/size), forBytes)
	if err != nil {
		return err
	}
	s.Many = Rate{Requests: n, FileBytes: size, Write: rate * float64(size)}
	if err = s.Many.readOf(ctx, r.scratch, pieces(many, size), true); err != nil {
		return err
	}

	tiny, rate, err := write(ctx, r.scratch, n, "tiny", TinyBytes, mostTiny, forTiny)
	if err != nil {
		return err
	}
	s.Tiny = Rate{Requests: n, FileBytes: TinyBytes, Write: rate * TinyBytes}
	if s.Tiny.Read, _, err = read(ctx, r.scratch, n, pieces(tiny, TinyBytes), forTiny, true); err != nil {
		return err
	}
	return r.latency(ctx, alone, tiny)
}

// measureThere reads what is there.
func (r *run) measureThere(ctx context.Context, there []backends.Object) (err error) {
	s := &r.report.Speed
	alone, n := r.Store.Narrow(1), r.connections
	by := slices.SortedFunc(slices.Values(there), func(a, b backends.Object) int { return int(min(max(b.Size-a.Size, -1), 1)) })
	by = slices.DeleteFunc(by, func(obj backends.Object) bool { return obj.Size == 0 })
	if len(by) > 0 {
		one := by[0]
		s.One = Rate{Requests: 1, FileBytes: one.Size}
		if r.Size > 0 {
			one.Size = min(one.Size, r.Size)
		}
		if s.One.Read, _, err = read(ctx, alone, 1, pieces([]backends.Object{one}, one.Size), forBytes, false); err != nil {
			return err
		}
		var sum int64
		for _, obj := range by {
			sum += obj.Size
		}
		s.Many = Rate{Requests: n, FileBytes: sum / int64(len(by))}
		if err = s.Many.readOf(ctx, r.Store, pieces(by, r.Store.Facts().PartSize), false); err != nil {
			return err
		}
		tiny := slices.DeleteFunc(by, func(obj backends.Object) bool { return obj.Size > 1<<20 })
		if len(tiny) >= leastTinys {
			var files float64
			s.Tiny = Rate{Requests: n}
			if s.Tiny.Read, files, err = read(ctx, r.Store, n, pieces(tiny, 1<<20), forTiny, false); err != nil {
				return err
			}
			s.Tiny.FileBytes = int64(s.Tiny.Read / max(files, 1))
		}
	}
	return r.latency(ctx, alone, there)
}

// readOf measures reading, and what it costs this machine.
func (m *Rate) readOf(ctx context.Context, store *backends.Store, of []piece, compare bool) (err error) {
	began, before := time.Now(), processors()
	m.Read, _, err = read(ctx, store, m.Requests, of, forBytes, compare)
	m.ReadCPU = (processors() - before).Seconds() / time.Since(began).Seconds()
	return err
}

// processors is how much time of processors this process has had.
func processors() time.Duration {
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// latency measures stats of objects, one after the other.
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

// writeOne writes a file by one request after the other: of the size that was asked
// for, or of one so large that it takes a while.
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

// write writes files of one size until time is over, n at once, and tells how many a
// second.
func write(ctx context.Context, store *backends.Store, n int, dir string, size int64, most int, during time.Duration) (objs []backends.Object, perSecond float64, err error) {
	var mu sync.Mutex // guards objs
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for range n {
		g.Go(func() error {
			for ctx.Err() == nil && time.Since(began) < during {
				i := next.Add(1)
				if i > int64(most) {
					break
				}
				obj, err := store.Put(ctx, fmt.Sprintf("%s/%06d", dir, i), pattern{}, size, backends.CreateOptions{})
				if err != nil {
					return err
				}
				mu.Lock()
				objs = append(objs, obj)
				mu.Unlock()
			}
			return ctx.Err()
		})
	}
	err = g.Wait()
	return objs, float64(len(objs)) / time.Since(began).Seconds(), err
}

// piece is a range to be read.
type piece struct {
	obj    backends.Object
	off, n int64
}

// pieces cuts objects into ranges of at most so many bytes.
func pieces(objs []backends.Object, most int64) (out []piece) {
	for _, obj := range objs {
		for off := int64(0); off < obj.Size; off += most {
			out = append(out, piece{obj, off, min(most, obj.Size-off)})
		}
	}
	return out
}

// errEnough ends a read when time is over.
var errEnough = errors.New("time is over")

// read reads pieces again and again until time is over, n at once, and tells how many
// bytes and how many whole pieces came a second.
func read(ctx context.Context, store *backends.Store, n int, of []piece, during time.Duration, compare bool) (perSecond, piecesPerSecond float64, err error) {
	to := &meter{until: time.Now().Add(during), compare: compare}
	var next, whole atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for range n {
		g.Go(func() error {
			for ctx.Err() == nil && time.Now().Before(to.until) {
				p := of[int(next.Add(1)-1)%len(of)]
				_, err := store.ReadRange(ctx, p.obj, p.off, p.n, to, nil)
				switch {
				case errors.Is(err, errEnough):
					return nil
				case err != nil:
					return err
				}
				whole.Add(1)
			}
			return ctx.Err()
		})
	}
	err = g.Wait()
	took := time.Since(began).Seconds()
	if wrong := to.wrong.Load(); err == nil && wrong > 0 {
		err = &backends.Error{Op: "read", Kind: backends.Corrupt, Err: fmt.Errorf("%d of the blocks that came are not those that were written", wrong)}
	}
	return float64(to.bytes.Load()) / took, float64(whole.Load()) / took, err
}

// meter counts bytes and keeps none.
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

// pattern is a file without end: noise, which no store can compress, again and again.
type pattern struct{}

const noiseBytes = 1 << 20

var noise = sync.OnceValue(func() []byte {
	p := make([]byte, noiseBytes)
	_, _ = rand.NewChaCha8([32]byte{'s', 't', 'a', 'g', 'e', 'r'}).Read(p) // it has no errors
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

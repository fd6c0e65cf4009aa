package backends

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// Put writes the size bytes of src as key. It reads src from several goroutines,
// and parts of it again when they failed. When it fails, nothing is published,
// unless the failure was that of the last step, whose outcome may be unknown.
func (s *Store) Put(ctx context.Context, key string, src io.ReaderAt, size int64, opts CreateOptions) (obj Object, err error) {
	opts.Size = size
	if opts.IfVersion != "" && opts.IfAbsent {
		return Object{}, &Error{Op: "create", Store: s.name, Key: key, Kind: Invalid, Err: errors.New("IfVersion and IfAbsent exclude each other")}
	}
	if s.parts != nil {
		obj, err = s.putParts(ctx, key, src, opts)
		if errors.Is(err, ErrStartOver) {
			opts.Resume = ""
			obj, err = s.putParts(ctx, key, src, opts)
		}
	} else {
		obj, err = s.putStream(ctx, key, src, opts)
	}
	obj.Key = key
	if err == nil {
		s.opts.Metrics.bytes.WithLabelValues(s.scheme.Name, "write").Add(float64(size))
	}
	return obj, err
}

// CheckKeys finds the first key that the store could never hold, as far as its
// protocol tells without asking. Who sends many asks before the first.
func (s *Store) CheckKeys(keys iter.Seq[string]) error {
	for key := range keys {
		if err := s.CheckKey(key); err != nil {
			return err
		}
	}
	return nil
}

// CheckKey returns an error of kind Invalid if the store could never hold the key, as far
// as its protocol tells without asking.
func (s *Store) CheckKey(key string) error {
	checker, ok := s.backend.(KeyChecker)
	if !ok {
		return nil
	}
	if err := checker.CheckKey(s.prefix + key); err != nil {
		return named(err, "create", s.name, key)
	}
	return nil
}

// putParts sends parts at once, each retried for itself.
func (s *Store) putParts(ctx context.Context, key string, src io.ReaderAt, opts CreateOptions) (obj Object, err error) {
	var w PartWriter
	err = s.retry(ctx, "create", key, func(ctx context.Context, _ *stallDetector) error {
		w, err = s.parts.CreateParts(ctx, s.prefix+key, opts)
		return err
	})
	if err != nil {
		return Object{}, err
	}
	defer w.Abort() // the error that led here says more
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(s.Workers())
	part := s.capabilities.PartLength(opts.Size)
	for off := int64(0); off < opts.Size && gctx.Err() == nil; off += part {
		g.Go(func() error {
			var reached atomic.Int64
			return s.retry(gctx, "write", key, func(ctx context.Context, watchdog *stallDetector) error {
				n := min(part, opts.Size-off)
				return w.WritePart(ctx, off, io.NewSectionReader(&paced{s, ctx, src, watchdog, &reached}, off, n))
			})
		})
	}
	if err := g.Wait(); err != nil {
		return Object{}, err
	}
	err = s.retry(ctx, "commit", key, func(ctx context.Context, _ *stallDetector) error {
		obj, err = w.Commit(ctx)
		return err
	})
	return obj, err
}

// putStream sends src from its beginning; a failure begins anew.
func (s *Store) putStream(ctx context.Context, key string, src io.ReaderAt, opts CreateOptions) (obj Object, err error) {
	var reached atomic.Int64
	err = s.retry(ctx, "write", key, func(ctx context.Context, watchdog *stallDetector) error {
		w, err := s.backend.Create(ctx, s.prefix+key, opts)
		if err != nil {
			return err
		}
		defer w.Abort() // the error that led here says more
		pooled := largeBuffers.Get().(*[]byte)
		defer largeBuffers.Put(pooled)
		from := io.NewSectionReader(&paced{s, ctx, src, watchdog, &reached}, 0, opts.Size)
		if _, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{from}, *pooled); err != nil {
			return err
		}
		if obj, err = w.Commit(ctx); err == nil {
			s.responded(watchdog)
		}
		return err
	})
	return obj, err
}

// paced reads a local file at the pace of the bandwidth limit and kicks the
// watchdog. Its errors are local. What was read for an earlier try is no progress: a
// store that takes all and then fails, each time, must not be tried for ever.
type paced struct {
	store    *Store
	ctx      context.Context // it lives as long as one request
	src      io.ReaderAt
	watchdog *stallDetector
	reached  *atomic.Int64 // how far any try came
}

func (p *paced) ReadAt(b []byte, off int64) (int, error) {
	if err := p.pace(len(b)); err != nil {
		return 0, err
	}
	n, err := local{p.src}.ReadAt(b, off)
	p.went(off, n)
	return n, err
}

// pace waits until n bytes may go.
func (p *paced) pace(n int) error {
	if err := p.yield(n); err != nil {
		return err
	}
	return p.store.throttle(p.ctx, n, p.watchdog)
}

// went hears that n bytes from off on went.
func (p *paced) went(off int64, n int) {
	if end, before := off+int64(n), p.reached.Load(); end > before {
		p.reached.CompareAndSwap(before, end)
		p.watchdog.Reset()
		p.store.requests.moved(n)
	} else {
		p.watchdog.alive()
	}
}

// yield waits while something is more urgent. The watchdog sleeps meanwhile.
func (p *paced) yield(n int) error {
	if p.store.opts.Yield == nil {
		return nil
	}
	p.watchdog.Pause()
	defer p.watchdog.alive()
	if err := p.store.opts.Yield(p.ctx, n); err != nil {
		return &Error{Kind: Canceled, Err: err}
	}
	return nil
}

// local is a file whose errors say that they are no store's.
type local struct{ src io.ReaderAt }

func (l local) ReadAt(b []byte, off int64) (int, error) {
	n, err := l.src.ReadAt(b, off)
	if n == len(b) {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the file became shorter while it was sent")
	}
	return n, &LocalError{err}
}

// Unpaced is what src reads, from its beginning, without the pace and the watch of
// the Store that handed it to WritePart: for a protocol that reads a part twice, as it
// must be summed before it is sent, or is sent in Commit.
func Unpaced(src *io.SectionReader) *io.SectionReader {
	under, off, n := src.Outer()
	if p, ok := under.(*paced); ok {
		from := p.src
		if counting, ok := from.(Counting); ok {
			from = counting.Uncounted()
		}
		under = local{from}
	}
	return io.NewSectionReader(under, off, n)
}

// Counting is a source of Put that takes what is read from it for sent. Uncounted is
// where the same bytes are read for another reason: a part that is summed first has not
// moved, and who forecasts the end of an upload by it would be wrong by all of it.
type Counting interface {
	io.ReaderAt
	Uncounted() io.ReaderAt
}

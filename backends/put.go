package backends

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// Put writes the size bytes of src as key. It reads src from several goroutines and rereads parts
// after a failure. A src that counts what is sent is a [Counting], one in a file an [InFile]. A failed
// Put publishes nothing, except that the outcome of a failed Commit may be unknown.
func (s *Store) Put(ctx context.Context, key string, src io.ReaderAt, size int64, opts CreateOptions) (obj Object, err error) {
	opts.Size = size
	if opts.IfVersion != "" && opts.IfAbsent {
		return Object{}, &Error{Op: "create", Store: s.name, Key: key, Kind: Invalid, Err: errors.New("IfVersion and IfAbsent are mutually exclusive")}
	}
	switch {
	case s.parts != nil && s.capabilities.OneRequest > 0 && size <= min(s.capabilities.OneRequest, s.capabilities.PartLength(size)):
		obj, err = s.putWhole(ctx, key, src, opts)
	case s.parts != nil:
		obj, err = s.putParts(ctx, key, src, opts)
		if errors.Is(err, ErrStartOver) {
			opts.Resume = ""
			obj, err = s.putParts(ctx, key, src, opts)
		}
	default:
		obj, err = s.putStream(ctx, key, src, opts)
	}
	obj.Key = key
	if err == nil {
		s.metrics.sent(size)
	}
	return obj, err
}

// CheckKeys returns an error for the first key that the store can never hold, as far as the
// protocol can decide without a request. Call it before a bulk upload.
func (s *Store) CheckKeys(keys iter.Seq[string]) error {
	for key := range keys {
		if err := s.CheckKey(key); err != nil {
			return err
		}
	}
	return nil
}

// CheckKey returns an error of kind Invalid if the store can never hold key, as far as the protocol
// can decide without a request.
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

// putWhole uploads an object with one request. The writer lasts for all attempts, because only it
// recognizes an object that it created although the response was lost.
func (s *Store) putWhole(ctx context.Context, key string, src io.ReaderAt, opts CreateOptions) (obj Object, err error) {
	var w PartWriter
	defer func() {
		if w != nil {
			_ = w.Abort() // the error that led here is more useful
		}
	}()
	written := opts.Size == 0
	err = s.retry(ctx, "commit", key, func(a *attempt) (err error) {
		if w == nil {
			if w, err = s.parts.CreateParts(a, s.prefix+key, opts); err != nil {
				return named(err, "create", s.name, key)
			}
		}
		if !written {
			whole := &Part{src, 0, opts.Size, &pacer{s, a, new(atomic.Int64)}}
			if err := w.WritePart(a, 0, whole); err != nil {
				return err
			}
			written = true
		}
		obj, err = w.Commit(a)
		return err
	})
	return obj, err
}

// putParts uploads parts concurrently and retries each one on its own.
func (s *Store) putParts(ctx context.Context, key string, src io.ReaderAt, opts CreateOptions) (obj Object, err error) {
	var w PartWriter
	err = s.retry(ctx, "create", key, func(a *attempt) error {
		w, err = s.parts.CreateParts(a, s.prefix+key, opts)
		return err
	})
	if err != nil {
		return Object{}, err
	}
	defer w.Abort() // the error that led here is more useful
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(s.Workers())
	part := s.capabilities.PartLength(opts.Size)
	for off := int64(0); off < opts.Size && gctx.Err() == nil; off += part {
		g.Go(func() error {
			var reached atomic.Int64
			return s.retry(gctx, "write", key, func(a *attempt) error {
				n := min(part, opts.Size-off)
				return w.WritePart(a, off, &Part{src, off, n, &pacer{s, a, &reached}})
			})
		})
	}
	if err := g.Wait(); err != nil {
		return Object{}, err
	}
	err = s.retry(ctx, "commit", key, func(a *attempt) error {
		obj, err = w.Commit(a)
		return err
	})
	return obj, err
}

// putStream uploads src sequentially. After a failure it starts over.
func (s *Store) putStream(ctx context.Context, key string, src io.ReaderAt, opts CreateOptions) (obj Object, err error) {
	var reached atomic.Int64
	err = s.retry(ctx, "write", key, func(a *attempt) error {
		w, err := s.backend.Create(a, s.prefix+key, opts)
		if err != nil {
			return err
		}
		defer w.Abort() // the error that led here is more useful
		pooled := largeBuffers.Get().(*[]byte)
		defer largeBuffers.Put(pooled)
		whole := &Part{src, 0, opts.Size, &pacer{s, a, &reached}}
		if _, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{whole.Reader()}, *pooled); err != nil {
			return err
		}
		if obj, err = w.Commit(a); err == nil {
			s.responded(a.asked)
		}
		return err
	})
	return obj, err
}

package backends

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"
)

// ReadRange copies n bytes of obj starting at off, or the rest if n < 0, to the same offsets of
// dst. It resumes where a stream broke. If sum is not nil, it receives each byte once, in order.
// ReadRange returns the checksum of the whole object if the store reported it. After an error an
// unknown part of the range has been written.
//
// If obj has no Version, ReadRange stats it first, so that all bytes belong to one version.
//
// An object that keeps ending early is an error of kind Corrupt, unless it is in another version
// meanwhile, which is an error of kind Changed.
func (s *Store) ReadRange(ctx context.Context, obj Object, off, n int64, dst io.WriterAt, sum hash.Hash) (Checksum, error) {
	if n < 0 {
		n = obj.Size - off
	}
	if off < 0 || n < 0 {
		return obj.Sum, s.unreadable(obj.Key, Invalid, "range of %d bytes from %d is outside an object of %d bytes", n, off, obj.Size)
	}
	if n == 0 {
		return obj.Sum, nil
	}
	if obj.Version == "" {
		now, err := s.Stat(ctx, obj.Key)
		if err != nil {
			return obj.Sum, err
		}
		obj.Version = now.Version
	}
	reported := obj.Sum
	at, end := off, off+n
	key := obj.Key
	obj.Key = s.prefix + key
	err := s.retry(ctx, "read", key, func(a *attempt) error {
		body, err := s.openRange(a, obj, at, end-at)
		if err != nil {
			return err
		}
		defer body.Close() // only the bytes received matter
		if reported.IsZero() {
			if checksummed, ok := body.(ChecksumReader); ok {
				reported = checksummed.ObjectChecksum()
			}
		}
		return s.copyRange(a, body, &at, end, dst, sum)
	})
	if errors.Is(err, errEndsEarly) {
		err = s.unreadable(key, Corrupt, "the store repeatedly sends only %d of %d bytes: %w", at-off, n, io.ErrUnexpectedEOF)
	}
	if KindOf(err) == Corrupt && errors.Is(err, io.ErrUnexpectedEOF) {
		err = s.endsBefore(ctx, key, &obj, err)
	}
	return reported, err
}

// unreadable is Errorf for reads that fail outside of an attempt, which would add the store.
func (s *Store) unreadable(key string, kind Kind, format string, args ...any) error {
	err := Errorf(kind, "read", key, format, args...)
	err.Store = s.name
	return err
}

// endsBefore returns the error for an object that has fewer bytes than it had when it was listed. If
// it is in another version now, nothing is corrupt: servers such as s3proxy look at the range before
// the version, and answer that a shorter object has no such range.
func (s *Store) endsBefore(ctx context.Context, key string, obj *Object, short error) error {
	now, err := s.Stat(ctx, key)
	switch {
	case err != nil && KindOf(err) == NotExist:
		return err
	case err != nil || now.Version == obj.Version:
		return short
	}
	return s.unreadable(key, Changed, "the object changed after it was listed: it has %d bytes now, not %d", now.Size, obj.Size)
}

// openRange calls the backend's OpenRange, hedged where allowed.
func (s *Store) openRange(ctx context.Context, obj Object, off, n int64) (io.ReadCloser, error) {
	if s.hedge == nil {
		return s.backend.OpenRange(ctx, obj, off, n)
	}
	return s.hedge.open(ctx, func(ctx context.Context) (io.ReadCloser, error) { return s.backend.OpenRange(ctx, obj, off, n) })
}

// Stretch is an in-memory destination for ReadRange: it holds the bytes of an object from Off on.
type Stretch struct {
	Bytes []byte
	Off   int64
}

// WriteAt implements io.WriterAt.
func (s Stretch) WriteAt(p []byte, off int64) (int, error) {
	if off < s.Off || off-s.Off+int64(len(p)) > int64(len(s.Bytes)) {
		return 0, io.ErrShortWrite
	}
	return copy(s.Bytes[off-s.Off:], p), nil
}

// copyRange copies bytes from body to dst until *at reaches end.
func (s *Store) copyRange(a *attempt, body io.Reader, at *int64, end int64, dst io.WriterAt, sum hash.Hash) error {
	from := s.newPieces(a, body, end-*at)
	defer from.close()
	for *at < end {
		p, err := from.next(*at, end)
		if len(p) > 0 {
			a.Pause() // time spent by the disk is not a stall of the store
			if _, err := dst.WriteAt(p, *at); err != nil {
				return &LocalError{err}
			}
			a.alive()
			if sum != nil {
				sum.Write(p)
			}
			*at += int64(len(p))
			s.requests.moved(len(p))
			s.metrics.arrived(len(p))
		}
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return &Error{Kind: Unavailable, Err: fmt.Errorf("%w by %d bytes", errEndsEarly, end-*at)}
			}
			return err
		}
	}
	return nil
}

// pieces cut a body into slices, in order. They come from a BufferedReader or from a pooled buffer.
type pieces struct {
	store    *Store
	watched  watchedReader
	buffered BufferedReader // nil: pooled is used
	pool     *sync.Pool
	pooled   *[]byte
}

// newPieces returns the pieces of a body of n bytes.
func (s *Store) newPieces(a *attempt, body io.Reader, n int64) *pieces {
	f := &pieces{store: s, watched: watchedReader{body, a, s}}
	if f.buffered, _ = body.(BufferedReader); f.buffered == nil {
		f.pool = buffersFor(n, s.requests.aim())
		f.pooled = f.pool.Get().(*[]byte)
	}
	return f
}

// close releases the buffer.
func (f *pieces) close() {
	if f.pool != nil {
		f.pool.Put(f.pooled)
	}
}

// next returns the bytes from at on, up to end. They are valid until the next call. Bytes that come
// with an error count.
func (f *pieces) next(at, end int64) ([]byte, error) {
	if f.buffered != nil {
		p, err := f.buffered.NextBuffer()
		if err != nil {
			return nil, err
		}
		f.watched.reset()
		p = p[:min(int64(len(p)), end-at)]
		return p, f.store.throttle(f.watched.attempt, len(p))
	}
	// Stop at the next multiple of the buffer size, so that writes stay aligned after a resume at an
	// odd offset.
	size := int64(len(*f.pooled))
	buf := (*f.pooled)[:min(size-at%size, end-at)]
	if err := f.store.throttle(f.watched.attempt, len(buf)); err != nil {
		return nil, err
	}
	n, err := io.ReadFull(&f.watched, buf)
	return buf[:n], err
}

// errEndsEarly means that a stream ended cleanly but too early.
var errEndsEarly = errors.New("the stream is truncated")

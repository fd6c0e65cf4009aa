package pack

import (
	"context"
	"fmt"
	"io"

	"golang.org/x/sync/semaphore"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/readahead"
)

const (
	// Limits of what is read ahead for one range: bytes in memory, and concurrent requests.
	ahead      = 8 << 20
	aheadFiles = 64
	// A file up to this size is read completely, even if only a part of it is needed, so that its
	// checksum can be compared. A larger one is read in pieces of this size.
	whole = 4 << 20
)

// reader reads a range of a shard in order, and reads files ahead.
type reader struct {
	chunks *readahead.Queue[chunk]
	room   *semaphore.Weighted // limits ahead
	now    int64               // the room of the current chunk
	rest   []byte              // its remaining bytes
	err    error
}

// chunk is a section of a shard.
type chunk struct {
	bytes []byte
	err   error
	room  int64
}

// read returns a reader for the bytes of a shard between two offsets.
func read(ctx context.Context, src *backends.Store, sh *shard, from, to int64) *reader {
	r := &reader{room: semaphore.NewWeighted(ahead)}
	r.chunks = readahead.New(ctx, aheadFiles, func(ctx context.Context, chunks *readahead.Queue[chunk]) {
		r.plan(ctx, chunks, src, sh, from, to)
	})
	return r
}

// plan walks the files of a range and starts to read them.
func (r *reader) plan(ctx context.Context, chunks *readahead.Queue[chunk], src *backends.Store, sh *shard, from, to int64) {
	// put appends the section of n bytes at an offset, as far as it lies in the range, and reports
	// whether more is needed.
	put := func(at, n int64, get func(skip, n int64) ([]byte, error)) bool {
		skip := max(from-at, 0)
		n = min(n, to-at) - skip
		if n <= 0 {
			return at < to
		}
		return r.room.Acquire(ctx, n) == nil && chunks.Put(func() chunk {
			bytes, err := get(skip, n)
			return chunk{bytes, err, n}
		})
	}
	i := 0
	for _, obj := range sh.files.All() {
		start, next := sh.starts[i], sh.starts[i+1]
		if i++; next <= from {
			continue
		}
		more := false
		if obj.Size <= whole {
			more = put(start, next-start, func(skip, n int64) ([]byte, error) {
				all, err := small(ctx, src, obj, next-start)
				if err != nil {
					return nil, err
				}
				return all[skip : skip+n], nil
			})
		} else {
			more = large(ctx, src, obj, start, next, put)
		}
		if !more {
			return
		}
	}
	put(sh.end(), trailer, zeros)
}

// small returns a file with its header and padding, n bytes in all.
func small(ctx context.Context, src *backends.Store, obj backends.Object, n int64) ([]byte, error) {
	head, err := header(obj)
	if err != nil {
		return nil, err
	}
	all := make([]byte, n)
	p := backends.Stretch{Bytes: all[copy(all, head):][:obj.Size]}
	reported, err := src.ReadRange(ctx, obj, 0, obj.Size, p, nil)
	if err != nil {
		return nil, err
	}
	if h := reported.Algorithm.New(); h != nil {
		h.Write(p.Bytes)
		if got := backends.SumOf(reported.Algorithm, h); got != reported {
			return nil, corrupt(src, obj, reported, got)
		}
	}
	return all, nil
}

// large puts a file in pieces. No piece covers the whole file, so after the last piece the file is
// read once more to compare its checksum.
func large(ctx context.Context, src *backends.Store, obj backends.Object, start, next int64, put func(at, n int64, get func(skip, n int64) ([]byte, error)) bool) bool {
	contents := next - padded(obj.Size)
	more := put(start, contents-start, func(skip, n int64) ([]byte, error) {
		head, err := header(obj)
		if err != nil {
			return nil, err
		}
		return head[skip : skip+n], nil
	})
	for at := int64(0); more && at < obj.Size; at += whole {
		more = put(contents+at, min(whole, obj.Size-at), func(skip, n int64) ([]byte, error) {
			p := backends.Stretch{Bytes: make([]byte, n), Off: at + skip}
			_, err := src.ReadRange(ctx, obj, p.Off, n, p, nil)
			if err == nil && p.Off+n == obj.Size {
				err = compare(ctx, src, obj)
			}
			return p.Bytes, err
		})
	}
	return more && put(contents+obj.Size, padded(obj.Size)-obj.Size, zeros)
}

func zeros(_, n int64) ([]byte, error) { return make([]byte, n), nil }

// compare reads a file that is too large for memory and compares its checksum.
func compare(ctx context.Context, src *backends.Store, obj backends.Object) error {
	reported := obj.Sum
	if reported.IsZero() && src.Capabilities().Checksum != "" {
		now, err := src.Stat(ctx, obj.Key)
		if err != nil {
			return err
		}
		if now.Version == obj.Version { // otherwise reading it reports the error
			reported = now.Sum
		}
	}
	h := reported.Algorithm.New()
	if h == nil {
		return nil
	}
	if _, err := src.ReadRange(ctx, obj, 0, obj.Size, nowhere{}, h); err != nil {
		return err
	}
	if got := backends.SumOf(reported.Algorithm, h); got != reported {
		return corrupt(src, obj, reported, got)
	}
	return nil
}

func corrupt(src *backends.Store, obj backends.Object, reported, got backends.Checksum) error {
	return &backends.Error{Op: "read", Store: src.Name(), Key: obj.Key, Kind: backends.Corrupt, Err: fmt.Errorf(
		"the store has %s, the received bytes have %s", reported, got)}
}

type nowhere struct{}

func (nowhere) WriteAt(b []byte, _ int64) (int, error) { return len(b), nil }

// NextBuffer implements backends.BufferedReader.
func (r *reader) NextBuffer() ([]byte, error) {
	if len(r.rest) == 0 && !r.next() {
		return nil, r.err
	}
	out := r.rest
	r.rest = nil
	return out, nil
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(r.rest) == 0 && !r.next() {
		return 0, r.err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// next waits for the next chunk that is not empty.
func (r *reader) next() bool {
	if r.err != nil {
		return false
	}
	r.room.Release(r.now)
	r.now = 0
	c, ok, err := r.chunks.Next()
	if !ok {
		if r.err = err; r.err == nil {
			r.err = io.EOF
		}
		return false
	}
	r.now, r.rest, r.err = c.room, c.bytes, c.err
	return r.err == nil
}

// Close stops reading ahead.
func (r *reader) Close() error {
	r.chunks.Close(nil)
	r.err, r.rest = io.ErrClosedPipe, nil
	return nil
}

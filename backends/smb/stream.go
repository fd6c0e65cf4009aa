package smb

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/stager-dev/stager/backends"
)

// OpenRange implements backends.Source.
func (b *Backend) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	if _, err := b.reach(ctx, "read", obj.Key); err != nil {
		return nil, err
	}
	if off < 0 {
		return nil, backends.Errorf(backends.Invalid, "read", obj.Key, "byte %d was asked for", off)
	}
	r := &stream{b: b, ctx: ctx, key: obj.Key, want: obj.Version, at: off, end: off + n}
	if err := r.open(n < 0 || n > chunkSize || obj.Version == "", n); err != nil {
		return nil, err
	}
	return r, nil
}

// stream is a range of a file, read ahead in chunks. It compares the version before
// it hands out the last bytes, and if there are many also at the beginning.
type stream struct {
	b    *Backend
	ctx  context.Context // the reader obeys the context of OpenRange
	key  string
	want backends.Version
	h    *handle
	at   int64 // what Read returns next
	next int64 // what is read ahead next
	end  int64
	more bool // than the file has was asked for

	ahead []*chunk // in order
	pos   int      // in the first of them
	err   error    // what every Read returns from now on
}

// open opens the file, and with look compares its version and learns its size: n < 0
// asks for all the rest.
func (r *stream) open(look bool, n int64) error {
	s, err := r.b.pool.get(r.ctx)
	if err != nil {
		return err
	}
	h, err := r.b.openHandle(r.ctx, s, r.key, os.O_RDONLY)
	if err != nil {
		return missing("read", r.key, err)
	}
	r.h, r.next = h, r.at
	if look {
		size, err := r.compare()
		if err == nil && r.at > size {
			err = backends.Errorf(backends.Invalid, "read", r.key, "byte %d of a file of %d was asked for", r.at, size)
		}
		if err != nil {
			r.h.retire()
			return err
		}
		if n < 0 {
			r.end = size
		} else if r.end > size {
			r.end, r.more = size, true
		}
	}
	r.fill()
	return nil
}

// compare finds the file unchanged, and tells its size.
func (r *stream) compare() (int64, error) {
	info, err := r.h.stat(r.ctx)
	if errors.Is(err, os.ErrClosed) {
		// It was let go of, so what is wanted has perhaps another file's name now.
		if s, serr := r.b.pool.get(r.ctx); serr != nil {
			return 0, serr
		} else if info, err = statPath(r.ctx, s, r.key); err != nil {
			return 0, missing("read", r.key, err)
		}
	}
	if err != nil {
		return 0, classify("read", r.key, err)
	}
	if info.IsDir() {
		return 0, typeIsFolder("read", r.key)
	}
	is := describe(r.key, info).Version
	if r.want == "" {
		r.want = is
	}
	if is != r.want {
		return 0, backends.Errorf(backends.Changed, "read", r.key, "version %s was asked for, and %s is there", r.want, is)
	}
	return info.EndOfFile, nil
}

// fill starts to read what comes next.
func (r *stream) fill() {
	for r.next < r.end && len(r.ahead) < window {
		c := r.b.newChunk(r.next, min(chunkSize, r.end-r.next), len(r.ahead) > 0)
		if c == nil {
			return
		}
		c.start(r.h, false)
		r.next += int64(len(c.buf))
		r.ahead = append(r.ahead, c)
	}
}

// drop forgets what was read ahead.
func (r *stream) drop() {
	for _, c := range r.ahead {
		c.free()
	}
	r.ahead, r.pos = nil, 0
}

// Read hands the last bytes on only after the file was found unchanged: those who
// know how many they want never ask for the end.
func (r *stream) Read(p []byte) (int, error) {
	if err := ended(r.ctx, "read", r.key); err != nil {
		return 0, err
	}
	if r.err != nil {
		return 0, r.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := r.read(p)
	if err != nil {
		r.err = err
		r.drop()
	}
	return n, err
}

func (r *stream) read(p []byte) (int, error) {
	for r.at < r.end {
		r.fill()
		c := r.ahead[0]
		select {
		case <-c.ready:
		case <-r.ctx.Done():
			return 0, ended(r.ctx, "read", r.key)
		}
		if errors.Is(c.err, errRetired) {
			r.drop()
			if err := r.open(true, r.end-r.at); err != nil {
				return 0, err
			}
			continue
		}
		n := copy(p, c.buf[r.pos:c.n])
		if n == 0 {
			return 0, r.short(c.err)
		}
		if r.at+int64(n) == r.end {
			if _, err := r.compare(); err != nil {
				return 0, err
			}
		}
		r.at += int64(n)
		if r.pos += n; r.pos == len(c.buf) {
			c.free()
			r.ahead, r.pos = r.ahead[1:], 0
		}
		return n, nil
	}
	if r.more {
		return 0, io.ErrUnexpectedEOF
	}
	return 0, io.EOF
}

// short is why a chunk has not all its bytes. What became of the file says more than
// why it could not be read.
func (r *stream) short(err error) error {
	var gone *lost
	if errors.As(err, &gone) {
		return classify("read", r.key, err)
	}
	size, cerr := r.compare()
	switch {
	case cerr != nil:
		return cerr
	case !errors.Is(err, io.EOF):
		return classify("read", r.key, err)
	case r.at > size:
		return backends.Errorf(backends.Invalid, "read", r.key, "byte %d of a file of %d was asked for", r.at, size)
	}
	return io.ErrUnexpectedEOF
}

// Close lets what is under way end by itself.
func (r *stream) Close() error {
	r.drop()
	r.h.retire()
	r.err = os.ErrClosed
	return nil
}

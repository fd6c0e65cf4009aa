package sftp

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/pkg/sftp"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// OpenRange implements backends.Source.
func (b *Backend) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	if err := fileshare.CheckCall(ctx, b.tree(), "read", obj.Key); err != nil {
		return nil, err
	}
	if off < 0 {
		return nil, backends.Errorf(backends.Invalid, "read", obj.Key, "invalid offset %d", off)
	}
	// A small file that is read at once comes from one state of it.
	if whole := off == 0 && n == obj.Size && n <= chunkSize; !whole && obj.Version != "" {
		if err := b.clock.settle(ctx, obj.Key, obj.ModTime); err != nil {
			return nil, err
		}
	}
	r := &stream{b: b, ctx: ctx, key: obj.Key, want: obj.Version, at: off}
	if err := r.open(n); err != nil {
		r.release()
		return nil, err
	}
	return r, nil
}

var _ backends.BufferedReader = (*stream)(nil)

// long is the longest range that is read without checking the version first. A longer read of a
// changed file should fail early.
const long = 32 << 20

// stream reads a range of a file, with read-ahead in chunks. It compares the version of the open
// file before it returns the last bytes, and for long ranges also at the start. A file that is
// replaced meanwhile stays open as it was.
type stream struct {
	b       *Backend
	ctx     context.Context // the context of OpenRange, which bounds all reads
	key     string
	want    backends.Version
	h       handle
	release func()
	at      int64 // offset of the next Read
	next    int64 // offset of the next read-ahead
	end     int64
	more    bool // the range extends beyond the end of the file

	ahead []*chunk // in order
	pos   int      // position in ahead[0]
	err   error    // returned by every further Read
}

// open opens the file and starts to read n bytes, or the rest if n < 0.
func (r *stream) open(n int64) (err error) {
	r.release = func() {}
	s, release, err := r.b.pool.Hold(r.ctx)
	if err != nil {
		return err
	}
	r.release = release
	if r.h, err = r.b.openHandle(r.ctx, s, r.key, os.O_RDONLY); err != nil {
		return missing("read", r.key, err)
	}
	r.next, r.end = r.at, r.at+n
	if n < 0 || n > long || r.want == "" {
		if err := r.checkVersion(n); err != nil {
			r.h.close()
			return err
		}
	}
	r.fill()
	return nil
}

// openHandle opens a file. If it creates the file and the caller has left by then, it removes the
// file again.
func (b *Backend) openHandle(ctx context.Context, s *session, key string, flag int) (handle, error) {
	return call(ctx, s, func(c *sftp.Client) (handle, error) {
		f, err := c.OpenFile(b.at(key), flag)
		return handle{s, f}, err
	}, func(h handle) {
		_ = s.Do(h.file.Close) // nothing was written
		if flag&os.O_CREATE != 0 {
			_ = s.Do(func() error { return s.client.Remove(b.at(key)) }) // it is empty and omitted from listings
		}
	})
}

// checkVersion compares the version at the start and sets the end of the range.
func (r *stream) checkVersion(n int64) error {
	info, err := r.compare()
	if err != nil {
		return err
	}
	left := info.Size() - r.at
	if left < 0 {
		return r.beyond(info)
	}
	if n < 0 || n > left {
		r.end, r.more = info.Size(), n > left
	}
	return nil
}

func (r *stream) beyond(info os.FileInfo) error {
	return backends.Errorf(backends.Invalid, "read", r.key, "byte %d is outside the file of %d bytes", r.at, info.Size())
}

// compare returns an error of kind Changed if the open file does not have the wanted version.
func (r *stream) compare() (os.FileInfo, error) {
	info, err := call(r.ctx, r.h.s, func(*sftp.Client) (os.FileInfo, error) { return r.h.file.Stat() }, nil)
	if err == nil {
		err = attributes(info).Regular("read", r.key)
	}
	if err != nil {
		return nil, classify("read", r.key, err)
	}
	is := describe(r.key, info).Version
	if r.want == "" {
		r.want = is
	}
	if is != r.want {
		return nil, backends.Errorf(backends.Changed, "read", r.key, "the file changed after it was listed, from version %s to %s", r.want, is)
	}
	return info, nil
}

// fill starts read-ahead. Chunks end at multiples of their size, because direct I/O needs aligned
// buffers from NextBuffer.
func (r *stream) fill() {
	for r.next < r.end && len(r.ahead) < window {
		c := newChunk(r.next, min(chunkSize-r.next%chunkSize, r.end-r.next))
		c.start(r.h, false)
		r.next += int64(len(c.buf))
		r.ahead = append(r.ahead, c)
	}
}

// drop discards the read-ahead.
func (r *stream) drop() {
	for _, c := range r.ahead {
		c.free()
	}
	r.ahead, r.pos = nil, 0
}

// Read returns the last bytes only after the version check: callers that know the size never read
// up to io.EOF.
func (r *stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, r.err
	}
	lent, err := r.nextBuffer(len(p))
	return copy(p, lent), err
}

// NextBuffer implements backends.BufferedReader.
func (r *stream) NextBuffer() ([]byte, error) { return r.nextBuffer(chunkSize) }

// nextBuffer returns up to n of the next bytes, under the rules of NextBuffer.
func (r *stream) nextBuffer(n int) ([]byte, error) {
	if err := fileshare.Ended(r.ctx, "read", r.key); err != nil {
		return nil, err
	}
	if r.err != nil {
		return nil, r.err
	}
	p, err := r.take(n)
	if err != nil {
		r.err = err
		r.drop()
	}
	return p, err
}

func (r *stream) take(n int) ([]byte, error) {
	if len(r.ahead) > 0 && r.pos == len(r.ahead[0].buf) { // fully consumed
		r.ahead[0].free()
		r.ahead, r.pos = r.ahead[1:], 0
	}
	if r.at >= r.end {
		if r.more {
			return nil, io.ErrUnexpectedEOF
		}
		return nil, io.EOF
	}
	r.fill()
	c := r.ahead[0]
	select {
	case <-c.ready:
	case <-r.ctx.Done():
		return nil, fileshare.Ended(r.ctx, "read", r.key)
	}
	p := c.buf[r.pos:max(c.n, r.pos)]
	if len(p) == 0 {
		return nil, r.short(c.err)
	}
	p = p[:min(n, len(p))]
	if r.at+int64(len(p)) == r.end {
		if _, err := r.compare(); err != nil {
			return nil, err
		}
	}
	r.at += int64(len(p))
	r.pos += len(p)
	return p, nil
}

// short returns the error for an incomplete chunk. A change of the file takes precedence over the
// read error, because it explains more.
func (r *stream) short(err error) error {
	if fileshare.IsLost(err) {
		return classify("read", r.key, err)
	}
	info, cerr := r.compare()
	switch {
	case cerr != nil:
		return cerr
	case !errors.Is(err, io.EOF):
		return classify("read", r.key, err)
	case r.at > info.Size():
		return r.beyond(info)
	}
	return io.ErrUnexpectedEOF
}

// Close releases the file. Pending reads finish in the background.
func (r *stream) Close() error {
	r.drop()
	if r.err != os.ErrClosed { //nolint:errorlint // it is the value itself
		r.h.close()
		r.release()
	}
	r.err = os.ErrClosed
	return nil
}

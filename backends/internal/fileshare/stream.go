package fileshare

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/stager-dev/stager/backends"
)

// OpenRange implements backends.Source. The reader compares the version of the file before it
// returns the last bytes, and for long ranges also at the start.
func (s *Share) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	if err := CheckCall(ctx, s.p, "read", obj.Key); err != nil {
		return nil, err
	}
	if off < 0 {
		return nil, backends.Errorf(backends.Invalid, "read", obj.Key, "invalid offset %d", off)
	}
	whole := off == 0 && n == obj.Size && n <= int64(s.config.ChunkSize)
	r := &stream{share: s, ctx: ctx, obj: obj, whole: whole, want: obj.Version, at: off}
	if err := r.open(n); err != nil {
		return nil, err
	}
	return r, nil
}

var _ backends.BufferedReader = (*stream)(nil)

// long is the longest range that is read without checking the version first. A longer read of a
// changed file should fail early.
const long = 32 << 20

// stream reads a range of a file, with read-ahead in chunks.
type stream struct {
	share *Share
	ctx   context.Context // the context of OpenRange, which bounds all reads
	obj   backends.Object
	whole bool // one request reads the whole file
	want  backends.Version
	file  File
	at    int64 // offset of the next Read
	next  int64 // offset of the next read-ahead
	end   int64
	more  bool // the range extends beyond the end of the file

	ahead []*chunk // in order
	pos   int      // position in ahead[0]
	err   error    // returned by every further Read
}

// open opens the file and starts to read n bytes, or the rest if n < 0.
func (r *stream) open(n int64) (err error) {
	p := r.share.p
	file, err := r.share.config.Open(r.ctx, r.obj, r.whole)
	if err != nil {
		return p.Missing("read", r.obj.Key, err)
	}
	r.file, r.next, r.end = file, r.at, r.at+n
	if n < 0 || n > long || r.want == "" {
		if err := r.checkVersion(n); err != nil {
			r.file.Close()
			return err
		}
	}
	r.fill()
	return nil
}

// reopen continues at the current position after the file was closed.
func (r *stream) reopen() error {
	r.drop()
	n := r.end - r.at
	if r.more {
		n++ // still beyond the end of the file
	}
	return r.open(n)
}

// checkVersion compares the version at the start and sets the end of the range.
func (r *stream) checkVersion(n int64) error {
	info, err := r.file.Stat(r.ctx)
	if err != nil {
		return r.share.p.Classify("read", r.obj.Key, err)
	}
	if err := r.compare(info); err != nil {
		return err
	}
	left := info.Size - r.at
	if left < 0 {
		return r.beyond(info)
	}
	if n < 0 || n > left {
		r.end, r.more = info.Size, n > left
	}
	return nil
}

// checkFinal compares the version at the end.
func (r *stream) checkFinal() (Info, error) {
	info, err := r.file.Final(r.ctx)
	if err != nil {
		return info, r.share.p.Missing("read", r.obj.Key, err)
	}
	return info, r.compare(info)
}

// compare returns an error of kind Changed if the file does not have the wanted version.
func (r *stream) compare(info Info) error {
	if err := info.Regular("read", r.obj.Key); err != nil {
		return err
	}
	is := r.share.p.Version(info)
	if r.want == "" {
		r.want = is
	}
	if !r.share.p.Same(is, r.want) {
		return backends.Errorf(backends.Changed, "read", r.obj.Key, "the file changed after it was listed, from version %s to %s", r.want, is)
	}
	return nil
}

func (r *stream) beyond(info Info) error {
	return backends.Errorf(backends.Invalid, "read", r.obj.Key, "byte %d is outside the file of %d bytes", r.at, info.Size)
}

// fill starts read-ahead. Chunks end at multiples of their size, because direct I/O needs aligned
// buffers from NextBuffer.
func (r *stream) fill() {
	size := int64(r.share.config.ChunkSize)
	for r.next < r.end && len(r.ahead) < r.share.config.Window {
		c := r.share.buffers.chunk(r.next, min(size-r.next%size, r.end-r.next), len(r.ahead) > 0)
		if c == nil {
			return
		}
		c.read(r.file)
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
func (r *stream) NextBuffer() ([]byte, error) { return r.nextBuffer(r.share.config.ChunkSize) }

// nextBuffer returns up to n of the next bytes, under the rules of NextBuffer.
func (r *stream) nextBuffer(n int) ([]byte, error) {
	if err := Ended(r.ctx, "read", r.obj.Key); err != nil {
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
	for r.at < r.end {
		r.fill()
		c := r.ahead[0]
		select {
		case <-c.ready:
		case <-r.ctx.Done():
			return nil, Ended(r.ctx, "read", r.obj.Key)
		}
		if errors.Is(c.err, ErrClosed) {
			if err := r.reopen(); err != nil {
				return nil, err
			}
			continue
		}
		p := c.buf[r.pos:max(c.n, r.pos)]
		if len(p) == 0 {
			return nil, r.short(c.err)
		}
		p = p[:min(n, len(p))]
		if r.at+int64(len(p)) == r.end {
			if _, err := r.checkFinal(); err != nil {
				return nil, err
			}
		}
		r.at += int64(len(p))
		r.pos += len(p)
		return p, nil
	}
	if r.more {
		return nil, io.ErrUnexpectedEOF
	}
	return nil, io.EOF
}

// short returns the error for an incomplete chunk. A change of the file takes precedence over the
// read error, because it explains more.
func (r *stream) short(err error) error {
	if lost := new(LostError); errors.As(err, &lost) {
		return r.share.p.Classify("read", r.obj.Key, err)
	}
	info, cerr := r.checkFinal()
	switch {
	case cerr != nil:
		return cerr
	case !errors.Is(err, io.EOF):
		return r.share.p.Classify("read", r.obj.Key, err)
	case r.at > info.Size:
		return r.beyond(info)
	}
	return io.ErrUnexpectedEOF
}

// Close releases the file. Pending reads finish in the background.
func (r *stream) Close() error {
	r.drop()
	r.file.Close()
	r.err = os.ErrClosed
	return nil
}

package smb

import (
	"context"
	"errors"
	"io"
	"os"

	smb2 "github.com/cloudsoda/go-smb2"

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
	r := &stream{b: b, ctx: ctx, key: obj.Key, want: obj.Version, at: off}
	if err := r.open(n); err != nil {
		return nil, err
	}
	return r, nil
}

var _ backends.BufferedReader = (*stream)(nil)

// long is the longest range that is read without checking the version first. A longer read of a
// changed file should fail early.
const long = 32 << 20

// stream reads a range of a file, with read-ahead in chunks. It compares the version before it
// returns the last bytes, and for long ranges also at the start.
//
// It closes the file before the final check. While a file is open, Samba reports the modification
// time from when it was opened, unless an SMB client changes the file.
type stream struct {
	b    *Backend
	ctx  context.Context // the context of OpenRange, which bounds all reads
	key  string
	want backends.Version
	h    *handle
	at   int64 // offset of the next Read
	next int64 // offset of the next read-ahead
	end  int64
	more bool // the range extends beyond the end of the file

	ahead []*chunk // in order
	pos   int      // position in ahead[0]
	err   error    // returned by every further Read
}

// open opens the file and starts to read n bytes, or the rest if n < 0.
func (r *stream) open(n int64) error {
	s, err := r.b.pool.get(r.ctx)
	if err != nil {
		return err
	}
	if err := r.b.enter(r.ctx, r.key); err != nil {
		return classify("read", r.key, err)
	}
	h, err := r.b.openHandle(r.ctx, s, r.key, os.O_RDONLY)
	if err != nil {
		return missing("read", r.key, err)
	}
	r.h, r.next, r.end = h, r.at, r.at+n
	if n < 0 || n > long || r.want == "" {
		if err := r.checkVersion(n); err != nil {
			h.retire()
			return err
		}
	}
	r.fill()
	return nil
}

// checkVersion compares the version at the start and sets the end of the range.
func (r *stream) checkVersion(n int64) error {
	info, err := r.h.stat(r.ctx)
	if err != nil {
		return classify("read", r.key, err)
	}
	if err := r.compare(info); err != nil {
		return err
	}
	left := info.EndOfFile - r.at
	if left < 0 {
		return r.beyond(info)
	}
	if n < 0 || n > left {
		r.end, r.more = info.EndOfFile, n > left
	}
	return nil
}

func (r *stream) beyond(info *smb2.FileStat) error {
	return backends.Errorf(backends.Invalid, "read", r.key, "byte %d is outside the file of %d bytes", r.at, info.EndOfFile)
}

// compare returns an error of kind Changed if the file does not have the wanted version.
func (r *stream) compare(info *smb2.FileStat) error {
	if info.IsDir() {
		return backends.Errorf(backends.NotExist, "read", r.key, "this is a directory, not a file")
	}
	is := describe(r.key, info).Version
	if r.want == "" {
		r.want = is
	}
	if !sameVersion(is, r.want) {
		return backends.Errorf(backends.Changed, "read", r.key, "the file changed after it was listed, from version %s to %s", r.want, is)
	}
	return nil
}

// recheckVersion compares the version at the end.
func (r *stream) recheckVersion() (*smb2.FileStat, error) {
	r.h.retire()
	if err := r.h.wait(r.ctx); err != nil {
		return nil, classify("read", r.key, err)
	}
	s, err := r.b.pool.get(r.ctx)
	if err != nil {
		return nil, err
	}
	info, err := r.b.statKey(r.ctx, s, r.key)
	if err != nil {
		return nil, missing("read", r.key, err)
	}
	return info, r.compare(info)
}

// fill starts read-ahead. Chunks end at multiples of their size, because direct I/O needs aligned
// buffers from NextBuffer.
func (r *stream) fill() {
	for r.next < r.end && len(r.ahead) < window {
		c := r.b.newChunk(r.next, min(chunkSize-r.next%chunkSize, r.end-r.next), len(r.ahead) > 0)
		if c == nil {
			return
		}
		c.start(r.h, false)
		r.next += int64(len(c.buf))
		r.ahead = append(r.ahead, c)
	}
}

// reopen continues at the current position after the handle was retired.
func (r *stream) reopen() error {
	r.drop()
	n := r.end - r.at
	if r.more {
		n++ // still beyond the end of the file
	}
	return r.open(n)
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
	for r.at < r.end {
		r.fill()
		c := r.ahead[0]
		select {
		case <-c.ready:
		case <-r.ctx.Done():
			return nil, fileshare.Ended(r.ctx, "read", r.key)
		}
		if errors.Is(c.err, errRetired) {
			if err := r.reopen(); err != nil {
				return nil, err
			}
			continue
		}
		p := c.buf[r.pos:c.n]
		if len(p) == 0 {
			return nil, r.short(c.err)
		}
		p = p[:min(n, len(p))]
		if r.at+int64(len(p)) == r.end {
			if _, err := r.recheckVersion(); err != nil {
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
	var gone *fileshare.LostError
	if errors.As(err, &gone) {
		return classify("read", r.key, err)
	}
	info, cerr := r.recheckVersion()
	switch {
	case cerr != nil:
		return cerr
	case !errors.Is(err, io.EOF):
		return classify("read", r.key, err)
	case r.at > info.EndOfFile:
		return r.beyond(info)
	}
	return io.ErrUnexpectedEOF
}

// Close releases the file. Pending reads finish in the background.
func (r *stream) Close() error {
	r.drop()
	r.h.retire()
	r.err = os.ErrClosed
	return nil
}

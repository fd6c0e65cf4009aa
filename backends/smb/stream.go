package smb

import (
	"context"
	"errors"
	"io"
	"os"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/stager-dev/stager/backends"
)

// OpenRange implements backends.Source.
func (b *Backend) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	if err := b.begins(ctx, "read", obj.Key); err != nil {
		return nil, err
	}
	if off < 0 {
		return nil, backends.Errorf(backends.Invalid, "read", obj.Key, "byte %d was asked for", off)
	}
	r := &stream{b: b, ctx: ctx, key: obj.Key, want: obj.Version, at: off}
	if err := r.open(n); err != nil {
		return nil, err
	}
	return r, nil
}

var _ backends.BufferedReader = (*stream)(nil)

// long is a range that is not read for nothing: the version is compared also before.
const long = 32 << 20

// stream is a range of a file, read ahead in chunks. It compares the version before it
// hands out the last bytes, and if there are many also at its beginning.
//
// At the end it closes the file before it asks: while a file is open, Samba tells the
// time of modification that it had when it was opened, unless its own clients change
// it.
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

// open opens the file and begins to read n bytes, or all the rest if n < 0.
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

// checkVersion compares the version at the beginning, and learns the size.
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
	return backends.Errorf(backends.Invalid, "read", r.key, "byte %d of a file of %d was asked for", r.at, info.EndOfFile)
}

// compare finds the file to be what is wanted.
func (r *stream) compare(info *smb2.FileStat) error {
	if info.IsDir() {
		return backends.Errorf(backends.NotExist, "read", r.key, "this is a directory, not a file")
	}
	is := describe(r.key, info).Version
	if r.want == "" {
		r.want = is
	}
	if !sameVersion(is, r.want) {
		return backends.Errorf(backends.Changed, "read", r.key, "the file changed since it was listed, from version %s to %s", r.want, is)
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

// fill starts to read what comes next, in chunks that end at multiples of their size,
// as direct I/O wants what is lent to it.
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

// reopen goes on where the stream is, after the file was let go of.
func (r *stream) reopen() error {
	r.drop()
	n := r.end - r.at
	if r.more {
		n++ // still more than there is
	}
	return r.open(n)
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
	if len(p) == 0 {
		return 0, r.err
	}
	lent, err := r.nextBuffer(len(p))
	return copy(p, lent), err
}

// NextBuffer implements backends.BufferedReader.
func (r *stream) NextBuffer() ([]byte, error) { return r.nextBuffer(chunkSize) }

// nextBuffer returns up to n of the bytes that come next, as Lend does.
func (r *stream) nextBuffer(n int) ([]byte, error) {
	if err := ended(r.ctx, "read", r.key); err != nil {
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
	if len(r.ahead) > 0 && r.pos == len(r.ahead[0].buf) { // it was lent to its end
		r.ahead[0].free()
		r.ahead, r.pos = r.ahead[1:], 0
	}
	for r.at < r.end {
		r.fill()
		c := r.ahead[0]
		select {
		case <-c.ready:
		case <-r.ctx.Done():
			return nil, ended(r.ctx, "read", r.key)
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

// short is why a chunk has not all its bytes. What became of the file says more than
// why it could not be read.
func (r *stream) short(err error) error {
	var gone *lost
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

// Close lets what is under way end by itself.
func (r *stream) Close() error {
	r.drop()
	r.h.retire()
	r.err = os.ErrClosed
	return nil
}

package ftp

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// long is the longest range that is read without comparing the version first. A longer read of a
// file that has changed should fail early.
const long = 32 << 20

// stream reads a range of a file by one connection, which it holds until it ends.
type stream struct {
	s    *server
	ctx  context.Context //nolint:containedctx // that of OpenRange, which bounds all reads
	obj  backends.Object
	c    *conn // nil once it was returned
	data *data // nil before the transfer and after it
	size int64 // of the file
	at   int64 // offset of the next byte
	end  int64
	more bool // the range extends beyond the end of the file
	err  error
}

// OpenRange implements backends.Source.
func (s *server) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	if err := fileshare.CheckCall(ctx, tree{s}, "read", obj.Key); err != nil {
		return nil, err
	}
	if off < 0 {
		return nil, backends.Errorf(backends.Invalid, "read", obj.Key, "invalid offset %d", off)
	}
	c, err := s.pool.get(ctx)
	if err != nil {
		return nil, explain("read", obj.Key, err)
	}
	r := &stream{s: s, ctx: ctx, obj: obj, c: c, size: obj.Size, at: off}
	if err := r.open(n); err != nil {
		r.release()
		return nil, explain("read", obj.Key, ended(ctx, err))
	}
	return r, nil
}

// open starts the transfer of n bytes, or of the rest if n < 0.
func (r *stream) open(n int64) error {
	if r.obj.Version == "" || n <= 0 || n > long || n > r.size-r.at {
		if err := r.compare(); err != nil {
			return err
		}
	}
	left := r.size - r.at
	if left < 0 {
		return backends.Errorf(backends.Invalid, "read", r.obj.Key, "byte %d is outside the file of %d bytes", r.at, r.size)
	}
	r.more = n > left
	if n < 0 || r.more {
		n = left
	}
	r.end = r.at + n
	if n == 0 {
		return nil
	}
	var before []string
	if r.at > 0 {
		before = []string{"REST " + strconv.FormatInt(r.at, 10)}
	}
	d, err := r.c.transfer(r.ctx, before, "RETR "+r.c.at(r.obj.Key))
	if kindOfReply(err) == backends.NotExist && !r.c.dead && r.compare() == nil {
		return backends.Errorf(backends.Permission, "read", r.obj.Key, "the server does not open this file (%w): check its permissions", err)
	}
	r.data = d
	return err
}

// compare asks for the attributes of the file, and returns an error of kind Changed if it does not
// have the wanted version.
func (r *stream) compare() error {
	info, err := r.c.stat(r.obj.Key)
	if err == nil {
		err = info.Regular("read", r.obj.Key)
	}
	if err != nil {
		return err
	}
	is := version(info)
	if r.obj.Version == "" {
		r.obj.Version = is
	}
	if is != r.obj.Version {
		return backends.Errorf(backends.Changed, "read", r.obj.Key, "the file changed after it was listed, from version %s to %s", r.obj.Version, is)
	}
	r.size = info.Size
	return nil
}

// Read returns the last bytes only after the version was compared.
func (r *stream) Read(p []byte) (int, error) {
	if len(p) == 0 || r.err != nil {
		return 0, r.err
	}
	if r.at == r.end {
		r.finish(nil)
		return 0, r.err
	}
	p = p[:min(int64(len(p)), r.end-r.at)]
	n, err := r.data.Read(p)
	r.at += int64(n)
	if r.at < r.end && err == nil {
		return n, nil
	}
	if r.at == r.end {
		err = nil
	}
	if r.finish(err); errors.Is(r.err, io.EOF) && n > 0 {
		return n, nil
	}
	if n > 0 && r.at < r.end {
		return n, nil // the error comes with the next call
	}
	return 0, r.err
}

// finish ends the transfer, for an error of the data connection or at the end of the range, and sets
// the error of all further calls.
func (r *stream) finish(err error) {
	defer r.release()
	if err == nil && r.data != nil {
		err = r.complete()
	}
	if err == nil {
		err = r.compare()
	} else if r.at < r.end {
		err = r.broken(err)
	}
	switch {
	case err != nil:
		r.err = explain("read", r.obj.Key, ended(r.ctx, err))
	case r.more:
		r.err = io.ErrUnexpectedEOF
	default:
		r.err = io.EOF
	}
}

// complete ends a transfer whose bytes have all arrived.
func (r *stream) complete() error {
	if r.end < r.size {
		r.abort()
		return nil
	}
	var beyond [1]byte
	n, err := r.data.Read(beyond[:])
	if n > 0 {
		r.abort()
		if err := r.compare(); err != nil {
			return err
		}
		return backends.Errorf(backends.Corrupt, "read", r.obj.Key, "the server sends more bytes than the file has: it may convert the ends of lines (ASCII mode)")
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	_ = r.data.Close() // all was read
	r.data = nil
	return r.c.ended()
}

// broken returns why the data connection ended before the range did.
func (r *stream) broken(err error) error {
	_ = r.data.Close() // it has failed
	r.data = nil
	if !errors.Is(err, io.EOF) {
		r.c.dead = true
		return err
	}
	if err := r.c.ended(); err != nil {
		return err
	}
	if err := r.compare(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// abort ends a transfer in its middle. The connection is used again if the server says that the
// transfer has ended.
func (r *stream) abort() {
	_ = r.data.Close() // its bytes are not wanted
	r.data = nil
	if err := r.c.ended(); err != nil && !is(err, codeAborted, codeNoData, 451, 551) || r.c.in.Buffered() > 0 {
		r.c.dead = true
	}
}

// release returns the connection.
func (r *stream) release() {
	if r.c == nil {
		return
	}
	if r.data != nil {
		_ = r.data.Close() // it was left
		r.c.dead = true
	}
	r.data = nil
	r.s.pool.put(r.c)
	r.c = nil
}

// Close ends the stream. A connection in the middle of a transfer is closed.
func (r *stream) Close() error {
	r.release()
	r.err = os.ErrClosed
	return nil
}

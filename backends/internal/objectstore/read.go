package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/stager-dev/stager/backends"
)

// NoBytes reports whether a range is empty, which no request can express.
func NoBytes(obj backends.Object, off, n int64) bool {
	return n == 0 || (n < 0 && off > 0 && off == obj.Size)
}

// Range returns the value after "bytes=" in a Range header.
func Range(off, n int64) string {
	if n < 0 {
		return fmt.Sprintf("%d-", off)
	}
	return fmt.Sprintf("%d-%d", off, off+n-1)
}

// BeyondEnd returns the error for a range that begins after the end of the object.
func BeyondEnd(key string, off int64) error {
	return &backends.Error{Op: "read", Key: key, Kind: backends.Corrupt, Err: fmt.Errorf("the object ends before byte %d: %w", off, io.ErrUnexpectedEOF)}
}

// Response describes the body that a server is about to send.
type Response struct {
	Status       int
	Version      backends.Version
	Length       int64 // -1 if unknown
	ContentRange string
}

// partial reports whether the body is a range of the object. "rclone serve s3" sends the requested
// range with status 200.
func (a Response) partial() bool {
	return a.Status == http.StatusPartialContent || a.ContentRange != ""
}

// Wanted checks that the response matches the request for n bytes of obj at off, and returns how
// many bytes of it to read. Some servers and proxies ignore If-Match or Range, and a mixture of
// versions would go unnoticed.
func (a Response) Wanted(obj backends.Object, off, n int64) (int64, error) {
	refuse := func(kind backends.Kind, format string, args ...any) (int64, error) {
		return 0, backends.Errorf(kind, "read", obj.Key, format, args...)
	}
	if obj.Version != "" && a.Version != obj.Version {
		return refuse(backends.Changed, "the object changed after it was listed: its ETag is %s, not %s", a.Version, obj.Version)
	}
	switch {
	case a.Length < 0:
		return refuse(backends.Unsupported, "the server, or a proxy before it, sent no Content-Length")
	case a.partial():
		var first, last, size int64
		if _, err := fmt.Sscanf(a.ContentRange, "bytes %d-%d/%d", &first, &last, &size); err != nil || first != off || a.Length != last-first+1 {
			return refuse(backends.Corrupt, "bytes %s were requested, but the server returned %q and %d bytes", Range(off, n), a.ContentRange, a.Length)
		}
		if n < 0 {
			n = size - off
		}
	case off != 0:
		return refuse(backends.Unsupported, "the server, or a proxy before it, ignores the Range header")
	case n < 0:
		n = a.Length
	}
	if obj.Version != "" && !a.partial() && a.Length != obj.Size {
		return refuse(backends.Changed, "the object has %d bytes, not %d as listed", a.Length, obj.Size)
	}
	return n, nil
}

// Body is a stream of exactly the requested bytes. Closing it early also closes the connection,
// which is cheaper than reading the rest of a large object.
type Body struct {
	io.ReadCloser
	ctx     context.Context //nolint:containedctx // it is that of the request
	key     string
	left    int64
	sum     backends.Checksum
	explain func(op, key string, err error) error
}

var _ backends.ChecksumReader = (*Body)(nil)

// NewBody returns a stream of left bytes from a response body. sum is the checksum of the whole
// object, if the response had one. explain converts errors to those of the store.
func NewBody(ctx context.Context, key string, from io.ReadCloser, left int64, sum backends.Checksum, explain func(op, key string, err error) error) *Body {
	return &Body{from, ctx, key, left, sum, explain}
}

// ObjectChecksum returns the checksum of the whole object, if the response had one.
func (r *Body) ObjectChecksum() backends.Checksum { return r.sum }

func (r *Body) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > r.left {
		p = p[:r.left]
	}
	n, err := r.ReadCloser.Read(p)
	r.left -= int64(n)
	switch {
	case r.ctx.Err() != nil: // the connection may report any error, or none yet
		return n, &backends.Error{Op: "read", Key: r.key, Kind: backends.Canceled, Err: context.Cause(r.ctx)}
	case err == nil, errors.Is(err, io.EOF) && r.left == 0:
		return n, nil // the next call returns io.EOF
	case errors.Is(err, io.EOF):
		return n, io.ErrUnexpectedEOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return n, err
	}
	return n, r.explain("read", r.key, err)
}

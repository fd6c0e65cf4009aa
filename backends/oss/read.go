package oss

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/aliyun/aliyun-oss-go-sdk/oss"

	"github.com/stager-dev/stager/backends"
)

// OpenRange asks for a range of one version. It believes no answer that is not of
// that version and that range: a mixture would go unseen.
func (b *bucket) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	if n == 0 || (n < 0 && off > 0 && off == obj.Size) {
		return http.NoBody, nil // ranges of no bytes cannot be asked for
	}
	// Without this header a range that cannot be satisfied brings the whole object.
	opts, err := b.with(ctx, oss.RangeBehavior("standard"))
	if err != nil {
		return nil, b.explain("read", obj.Key, err)
	}
	if obj.Version != "" {
		opts = append(opts, oss.IfMatch(`"`+string(obj.Version)+`"`))
	}
	if off > 0 || n > 0 {
		opts = append(opts, oss.NormalizedRange(rangeOf(off, n)))
	}
	out, err := b.client.DoGetObject(&oss.GetObjectRequest{ObjectKey: obj.Key}, opts)
	if err != nil {
		if statusOf(err) == http.StatusRequestedRangeNotSatisfiable {
			return nil, &backends.Error{Op: "read", Key: obj.Key, Kind: backends.Corrupt, Err: fmt.Errorf(
				"the object ends before byte %d: %w", off, io.ErrUnexpectedEOF)}
		}
		return nil, b.explain("read", obj.Key, err)
	}
	res := out.Response
	left, err := checkAnswer(obj, off, n, res.StatusCode, res.Headers)
	if err != nil {
		res.Body.Close() //nolint:errcheck // it is thrown away
		return nil, err
	}
	return &body{bucket: b, ctx: ctx, key: obj.Key, ReadCloser: res.Body, left: left, sum: sumOf(res.Headers)}, nil
}

// rangeOf is how a range is written behind "bytes=".
func rangeOf(off, n int64) string {
	if n < 0 {
		return fmt.Sprintf("%d-", off)
	}
	return fmt.Sprintf("%d-%d", off, off+n-1)
}

// checkAnswer compares an answer with the question and returns how many bytes of it
// are wanted.
func checkAnswer(obj backends.Object, off, n int64, status int, h http.Header) (int64, error) {
	if got := version(h.Get("ETag")); obj.Version != "" && got != obj.Version {
		return 0, backends.Errorf(backends.Changed, "read", obj.Key, "the object changed since it was listed: its ETag is %s, not %s", got, obj.Version)
	}
	length, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	if err != nil {
		return 0, backends.Errorf(backends.Unsupported, "read", obj.Key, "the server, or a proxy before it, does not say how many bytes come")
	}
	switch {
	case status == http.StatusPartialContent:
		var first, last, size int64
		told := h.Get("Content-Range")
		if _, err := fmt.Sscanf(told, "bytes %d-%d/%d", &first, &last, &size); err != nil || first != off || length != last-first+1 {
			return 0, backends.Errorf(backends.Corrupt, "read", obj.Key, "the server was asked for bytes %s and answers with %q and %d bytes", rangeOf(off, n), told, length)
		}
		if n < 0 {
			n = size - off
		}
	case off != 0:
		return 0, backends.Errorf(backends.Unsupported, "read", obj.Key, "the server, or a proxy before it, ignores the Range header")
	case n < 0:
		n = length
	}
	if obj.Version != "" && status == http.StatusOK && length != obj.Size {
		return 0, backends.Errorf(backends.Changed, "read", obj.Key, "the object has %d bytes, not %d as was listed", length, obj.Size)
	}
	return n, nil
}

// body is a stream of exactly the bytes that were asked for. Closed before the
// answer's end it takes the connection with it, which is cheaper than the rest of a
// large object.
type body struct {
	io.ReadCloser
	bucket *bucket
	ctx    context.Context //nolint:containedctx // it is that of the request
	key    string
	left   int64
	sum    backends.Checksum
}

var _ backends.Summer = (*body)(nil)

// ObjectSum is the checksum of the whole object, which comes with every range.
func (r *body) ObjectSum() backends.Checksum { return r.sum }

func (r *body) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > r.left {
		p = p[:r.left]
	}
	n, err := r.ReadCloser.Read(p)
	r.left -= int64(n)
	switch {
	case r.ctx.Err() != nil: // the connection may call it many names, or not have noticed
		return n, &backends.Error{Op: "read", Key: r.key, Kind: backends.Canceled, Err: context.Cause(r.ctx)}
	case err == nil, errors.Is(err, io.EOF) && r.left == 0:
		return n, nil // the end is told by the next call
	case errors.Is(err, io.EOF):
		return n, io.ErrUnexpectedEOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return n, err
	}
	return n, r.bucket.explain("read", r.key, err)
}

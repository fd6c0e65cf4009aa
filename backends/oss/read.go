package oss

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/aliyun/aliyun-oss-go-sdk/oss"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// OpenRange requests a range of one version and rejects a response for another version or range.
func (b *bucket) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	if objectstore.NoBytes(obj, off, n) {
		return http.NoBody, nil
	}
	// Without this header, an unsatisfiable range returns the whole object.
	opts, err := b.with(ctx, oss.RangeBehavior("standard"))
	if err != nil {
		return nil, b.explain("read", obj.Key, err)
	}
	if obj.Version != "" {
		opts = append(opts, oss.IfMatch(`"`+string(obj.Version)+`"`))
	}
	if off > 0 || n > 0 {
		opts = append(opts, oss.NormalizedRange(objectstore.Range(off, n)))
	}
	out, err := b.client.DoGetObject(&oss.GetObjectRequest{ObjectKey: obj.Key}, opts)
	if err != nil {
		if statusOf(err) == http.StatusRequestedRangeNotSatisfiable {
			return nil, objectstore.BeyondEnd(obj.Key, off)
		}
		return nil, b.explain("read", obj.Key, err)
	}
	res := out.Response
	left, err := responseOf(res.StatusCode, res.Headers).Wanted(obj, off, n)
	if err != nil {
		res.Body.Close() //nolint:errcheck // it is thrown away
		return nil, err
	}
	return objectstore.NewBody(ctx, obj.Key, res.Body, left, sumOf(res.Headers), b.explain), nil
}

// responseOf extracts what a response says about its body.
func responseOf(status int, h http.Header) objectstore.Response {
	length, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	if err != nil {
		length = -1
	}
	return objectstore.Response{Status: status, Version: version(h.Get("ETag")), Length: length, ContentRange: h.Get("Content-Range")}
}

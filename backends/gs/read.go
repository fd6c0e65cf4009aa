package gs

import (
	"context"
	"io"
	"net/http"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// OpenRange requests a range of one generation and rejects a response for another generation or
// range.
func (b *bucket) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	if objectstore.NoBytes(obj, off, n) {
		return http.NoBody, nil
	}
	if b.CheckKey(obj.Key) != nil {
		return nil, backends.Errorf(backends.NotExist, "read", obj.Key, "%w", backends.ErrNothing)
	}
	res, err := b.get(ctx, obj, off, n)
	if err != nil {
		if refusal(err).status == http.StatusRequestedRangeNotSatisfiable {
			return nil, objectstore.BeyondEnd(obj.Key, off)
		}
		return nil, b.explain("read", obj.Key, err)
	}
	left, err := wanted(res, obj, off, n)
	if err != nil {
		_ = res.Body.Close() // it is thrown away
		return nil, err
	}
	return objectstore.NewBody(ctx, obj.Key, res.Body, left, sumIn(res.Header), b.explain), nil
}

// get requests a range by the XML API, or by the JSON API if the server has no other.
func (b *bucket) get(ctx context.Context, obj backends.Object, off, n int64) (*http.Response, error) {
	if !b.withoutXML.Load() {
		q := b.inXML(http.MethodGet, obj.Key)
		if obj.Version != "" {
			q.header.Set("X-Goog-If-Generation-Match", string(obj.Version))
		}
		res, err := b.client.do(ctx, q.ranged(off, n))
		if !lacksXML(err) {
			return res, err
		}
	}
	q := b.inJSON(http.MethodGet, "o", obj.Key)
	q.query.Set("alt", "media")
	if obj.Version != "" {
		q.query.Set("ifGenerationMatch", string(obj.Version))
	}
	res, err := b.client.do(ctx, q.ranged(off, n))
	if err == nil {
		b.withoutXML.Store(true)
	}
	return res, err
}

// ranged adds the headers of a read.
func (q *call) ranged(off, n int64) *call {
	q.header.Set("Accept-Encoding", "gzip") // otherwise the store decompresses what was stored compressed
	if off > 0 || n > 0 {
		q.header.Set("Range", "bytes="+objectstore.Range(off, n))
	}
	return q
}

// wanted checks that a response matches the request, and returns how many bytes of it to read.
func wanted(res *http.Response, obj backends.Object, off, n int64) (int64, error) {
	is := backends.Version(res.Header.Get("X-Goog-Generation"))
	if obj.Version != "" && is != obj.Version {
		return 0, backends.Errorf(backends.Changed, "read", obj.Key, "the object changed after it was listed: its generation is %q, not %s", is, obj.Version)
	}
	stored := res.Header.Get("X-Goog-Stored-Content-Encoding")
	if sent := res.Header.Get("Content-Encoding"); sent == "gzip" && stored != "" && stored != sent {
		return 0, backends.Errorf(backends.Unsupported, "read", obj.Key, "the server, or a proxy before it, compressed the object on the way")
	}
	return objectstore.Response{
		Status: res.StatusCode, Version: is, Length: res.ContentLength, ContentRange: res.Header.Get("Content-Range"),
	}.Wanted(obj, off, n)
}

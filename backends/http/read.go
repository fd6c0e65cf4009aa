package http

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// OpenRange requests a range of one version and rejects a response for another version or range. A
// server that ignores ranges sends the object from its beginning.
func (s *site) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	e, err := s.entry("read", obj.Key)
	if err != nil {
		return nil, err
	}
	if objectstore.NoBytes(obj, off, n) {
		return http.NoBody, nil
	}
	body, err := s.open(ctx, e, obj, off, n)
	if err != nil {
		return nil, s.explain("read", obj.Key, e.at, err)
	}
	return body, nil
}

func (s *site) open(ctx context.Context, e entry, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	header := s.header(e.at)
	pin(header, obj.Version)
	whole := off == 0 && (n < 0 || n == obj.Size)
	if !whole {
		header.Set("Range", "bytes="+objectstore.Range(off, n))
	}
	res, _, err := s.fetcher.Fetch(ctx, http.MethodGet, e.at, header)
	if err != nil {
		return nil, err
	}
	switch res.StatusCode {
	case http.StatusOK, http.StatusPartialContent:
	case http.StatusRequestedRangeNotSatisfiable:
		res.Body.Close() //nolint:errcheck // it is thrown away
		return nil, objectstore.BeyondEnd(obj.Key, off)
	default:
		return nil, objectstore.Refusal(res)
	}
	body, err := s.wanted(ctx, res, e.at, obj, off, n)
	if err != nil {
		res.Body.Close() //nolint:errcheck // it is thrown away
	}
	return body, err
}

// pin adds the conditions under which a server sends a version.
func pin(header http.Header, v backends.Version) {
	switch text := string(v); {
	case strings.HasPrefix(text, `"`):
		header.Set("If-Match", text)
		header.Set("If-Range", text) // for servers that know only this one
	case strings.HasPrefix(text, "W/"), text == "", strings.HasPrefix(text, "size "): // the response is compared
	default:
		header.Set("If-Unmodified-Since", text)
	}
}

// wanted returns the requested bytes of a response.
func (s *site) wanted(ctx context.Context, res *http.Response, at *url.URL, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	size := res.ContentLength
	if res.StatusCode == http.StatusPartialContent {
		size = sizeIn(res.Header.Get("Content-Range"))
	}
	if err := acceptable(obj.Key, res.Header); err != nil {
		if obj.Version != "" && errors.As(err, new(*pageError)) { // it was there when it was listed
			err = &backends.Error{Op: "read", Key: obj.Key, Kind: backends.Unavailable, Err: err}
		}
		return nil, err
	}
	now := version(res.Header, size)
	if obj.Version != "" && !sameVersion(now, obj.Version) {
		return nil, backends.Errorf(backends.Changed, "read", obj.Key, "the object changed after it was listed: its version is %s, not %s",
			objectstore.Shorten(string(now)), objectstore.Shorten(string(obj.Version)))
	}
	explain := func(op, key string, err error) error { return s.explain(op, key, at, err) }
	return objectstore.BodyOf(ctx, res, obj, off, n, explain)
}

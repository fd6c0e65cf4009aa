package s3

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// OpenRange requests a range of one version and rejects a response for another version or range.
func (b *bucket) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	if objectstore.NoBytes(obj, off, n) {
		return http.NoBody, nil
	}
	if obj.Key == "" { // its path would be that of the listing
		return nil, backends.Errorf(backends.Invalid, "read", "", "an object must have a name")
	}
	// Only a response with the whole object contains the checksum of the whole object.
	whole := off == 0 && (n < 0 || obj.Sum.IsZero())
	q := b.reader.object(obj.Key)
	q.values[modeField] = "ENABLED" // requests the checksum
	if obj.Version != "" {
		q.values[matchField] = etag(obj.Version)
	}
	if !whole {
		q.values[rangeField] = "bytes=" + objectstore.Range(off, n)
	}
	res, err := b.requests.get(ctx, q)
	if err != nil {
		if serverErrorOf(err).status == http.StatusRequestedRangeNotSatisfiable {
			return nil, objectstore.BeyondEnd(obj.Key, off)
		}
		return nil, b.explain("read", obj.Key, err)
	}
	b.exists.Store(true)
	answer := objectstore.Response{Status: res.StatusCode, Version: version(new(res.Header.Get("Etag"))), Length: res.ContentLength, ContentRange: res.Header.Get("Content-Range")}
	left, err := answer.Wanted(obj, off, n)
	if err != nil {
		res.Body.Close() //nolint:errcheck // it is thrown away
		return nil, err
	}
	var sum backends.Checksum
	if whole {
		sum = sumIn(res.Header)
	}
	return objectstore.NewBody(ctx, obj.Key, res.Body, left, sum, b.explain), nil
}

// sumIn returns the checksum of the whole object from a response header.
func sumIn(h http.Header) backends.Checksum {
	var sums [len(sumHeaders)]*string
	for i := range sumHeaders {
		if values := h[sumHeaders[i].name]; len(values) > 0 {
			sums[i] = &values[0]
		}
	}
	return wholeSum(types.ChecksumType(h.Get("X-Amz-Checksum-Type")), sums[0], sums[1], sums[2], sums[3], sums[4])
}

func etag(v backends.Version) string {
	if strings.HasPrefix(string(v), "W/") {
		return string(v) + `"` // its opening quote is still there
	}
	return `"` + string(v) + `"`
}

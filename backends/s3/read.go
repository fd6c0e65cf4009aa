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

// sumIn returns the checksum of the whole object from a response header. Its names are as net/http
// spells them, which spares Header.Get the spelling.
func sumIn(h http.Header) backends.Checksum {
	reported := func(name string) *string {
		if values := h[name]; len(values) > 0 {
			return &values[0]
		}
		return nil
	}
	return wholeSum(types.Checksum{
		ChecksumType:      types.ChecksumType(value(reported("X-Amz-Checksum-Type"))),
		ChecksumCRC64NVME: reported("X-Amz-Checksum-Crc64nvme"),
		ChecksumCRC32C:    reported("X-Amz-Checksum-Crc32c"),
		ChecksumCRC32:     reported("X-Amz-Checksum-Crc32"),
		ChecksumSHA256:    reported("X-Amz-Checksum-Sha256"),
		ChecksumSHA1:      reported("X-Amz-Checksum-Sha1"),
	})
}

func etag(v backends.Version) string {
	if strings.HasPrefix(string(v), "W/") {
		return string(v) + `"` // its opening quote is still there
	}
	return `"` + string(v) + `"`
}

package az

import (
	"context"
	"io"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// OpenRange requests a range of one version and rejects a response for another version or range.
func (s *store) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	if objectstore.NoBytes(obj, off, n) {
		return http.NoBody, nil
	}
	b, err := s.blob(ctx, obj.Key)
	if err != nil {
		return nil, s.explain("read", obj.Key, err)
	}
	opts := blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: off, Count: max(n, 0)}}
	if obj.Version != "" {
		opts.AccessConditions = inVersion(obj.Version)
	}
	res, err := b.DownloadStream(ctx, &opts)
	if err != nil {
		if statusOf(err) == http.StatusRequestedRangeNotSatisfiable {
			return nil, objectstore.BeyondEnd(obj.Key, off)
		}
		return nil, s.explain("read", obj.Key, err)
	}
	s.heard.Store(true)
	// The SDK does not return the status, but a range has a Content-Range.
	response := objectstore.Response{Status: http.StatusOK, Version: version(res.ETag), Length: -1, ContentRange: value(res.ContentRange)}
	if res.ContentLength != nil {
		response.Length = *res.ContentLength
	}
	left, err := response.Wanted(obj, off, n)
	if err != nil {
		res.Body.Close() //nolint:errcheck // it is thrown away
		return nil, err
	}
	return objectstore.NewBody(ctx, obj.Key, res.Body, left, backends.Checksum{}, s.explain), nil
}

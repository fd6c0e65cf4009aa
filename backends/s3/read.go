package s3

import (
	"context"
	"io"
	"net/http"
	"strings"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/httpstore"
)

// OpenRange asks for a range of one version, and believes no answer that is not of
// that version and that range.
func (b *bucket) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	if httpstore.NoBytes(obj, off, n) {
		return http.NoBody, nil
	}
	// Only an answer with the whole object tells the whole object's checksum.
	whole := off == 0 && (n < 0 || obj.Sum.IsZero())
	in := &s3.GetObjectInput{Bucket: &b.name, Key: &obj.Key, RequestPayer: b.payer}
	if obj.Version != "" {
		in.IfMatch = new(etag(obj.Version))
	}
	if !whole {
		in.Range = new("bytes=" + httpstore.Range(off, n))
	}
	out, err := b.client.GetObject(ctx, in, s3.WithAPIOptions(askForSum))
	if err != nil {
		if answerOf(err).status == http.StatusRequestedRangeNotSatisfiable {
			return nil, httpstore.BeyondEnd(obj.Key, off)
		}
		return nil, b.explain("read", obj.Key, err)
	}
	b.exists.Store(true)
	answer := httpstore.Answer{Status: status(out.ResultMetadata), Version: version(out.ETag), Length: -1, ContentRange: value(out.ContentRange)}
	if out.ContentLength != nil {
		answer.Length = *out.ContentLength
	}
	left, err := answer.Wanted(obj, off, n)
	if err != nil {
		out.Body.Close() //nolint:errcheck // it is thrown away
		return nil, err
	}
	var sum backends.Checksum
	if whole {
		sum = wholeSum(out.ChecksumType, out.ChecksumCRC64NVME, out.ChecksumCRC32C, out.ChecksumCRC32, out.ChecksumSHA256, out.ChecksumSHA1)
	}
	return httpstore.NewBody(ctx, obj.Key, out.Body, left, sum, b.explain), nil
}

func etag(v backends.Version) string {
	if strings.HasPrefix(string(v), "W/") {
		return string(v) + `"` // its opening quote is still there
	}
	return `"` + string(v) + `"`
}

// askForSum has the store tell the object's checksum. Asked by the SDK's own field
// the SDK would compute it as well, over a body that is not always read to its end.
func askForSum(stack *middleware.Stack) error {
	return stack.Build.Add(middleware.BuildMiddlewareFunc("AskForSum",
		func(ctx context.Context, in middleware.BuildInput, next middleware.BuildHandler) (middleware.BuildOutput, middleware.Metadata, error) {
			if r, ok := in.Request.(*smithyhttp.Request); ok {
				r.Header.Set("X-Amz-Checksum-Mode", "ENABLED")
			}
			return next.HandleBuild(ctx, in)
		}), middleware.After)
}

// status is that of the answer behind an operation's result.
func status(m middleware.Metadata) int {
	if r, ok := awsmiddleware.GetRawResponse(m).(*smithyhttp.Response); ok {
		return r.StatusCode
	}
	return 0
}

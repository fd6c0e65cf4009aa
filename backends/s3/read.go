package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/stager-dev/stager/backends"
)

// OpenRange asks for a range of one version. It believes no answer that is not of
// that version and that range: servers and proxies exist that ignore If-Match or
// Range, and a mixture would go unseen.
func (b *bucket) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	if n == 0 || (n < 0 && off > 0 && off == obj.Size) {
		return http.NoBody, nil // ranges of no bytes cannot be asked for
	}
	// Only an answer with the whole object tells the whole object's checksum.
	whole := off == 0 && (n < 0 || obj.Sum.IsZero())
	in := &s3.GetObjectInput{Bucket: &b.name, Key: &obj.Key, RequestPayer: b.payer}
	if obj.Version != "" {
		in.IfMatch = new(etag(obj.Version))
	}
	if !whole {
		in.Range = new(rangeHeader(off, n))
	}
	out, err := b.client.GetObject(ctx, in, s3.WithAPIOptions(askForSum))
	if err != nil {
		if answerOf(err).status == http.StatusRequestedRangeNotSatisfiable {
			return nil, &backends.Error{Op: "read", Key: obj.Key, Kind: backends.Corrupt, Err: fmt.Errorf(
				"the object ends before byte %d: %w", off, io.ErrUnexpectedEOF)}
		}
		return nil, b.explain("read", obj.Key, err)
	}
	b.exists.Store(true)
	left, err := checkAnswer(obj, off, n, status(out.ResultMetadata), out)
	if err != nil {
		out.Body.Close() //nolint:errcheck // it is thrown away
		return nil, err
	}
	r := &body{bucket: b, ctx: ctx, key: obj.Key, ReadCloser: out.Body, left: left}
	if whole {
		r.sum = wholeSum(out.ChecksumType, out.ChecksumCRC64NVME, out.ChecksumCRC32C, out.ChecksumCRC32, out.ChecksumSHA256, out.ChecksumSHA1)
	}
	return r, nil
}

func etag(v backends.Version) string {
	if strings.HasPrefix(string(v), "W/") {
		return string(v) + `"` // its opening quote is still there
	}
	return `"` + string(v) + `"`
}

func rangeHeader(off, n int64) string {
	if n < 0 {
		return fmt.Sprintf("bytes=%d-", off)
	}
	return fmt.Sprintf("bytes=%d-%d", off, off+n-1)
}

// checkAnswer compares an answer with the question and returns how many bytes of it
// are wanted.
func checkAnswer(obj backends.Object, off, n int64, status int, out *s3.GetObjectOutput) (int64, error) {
	if got := version(out.ETag); obj.Version != "" && got != obj.Version {
		return 0, backends.Errorf(backends.Changed, "read", obj.Key, "the object changed since it was listed: its ETag is %s, not %s", got, obj.Version)
	}
	length := value(out.ContentLength)
	switch {
	case status == http.StatusPartialContent:
		var first, last, size int64
		told := value(out.ContentRange)
		if _, err := fmt.Sscanf(told, "bytes %d-%d/%d", &first, &last, &size); err != nil || first != off || length != last-first+1 {
			return 0, backends.Errorf(backends.Corrupt, "read", obj.Key, "the server was asked for %q and answers with %q and %d bytes", rangeHeader(off, n), told, length)
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

// ObjectSum is the checksum of the whole object, if the answer told it.
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

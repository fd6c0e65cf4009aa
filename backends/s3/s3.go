package s3

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// partSize is large enough that the overhead of a request becomes negligible.
const partSize = 16 << 20

// maxParallelism is more than the highest useful concurrency measured at 20 ms latency.
const maxParallelism = 512

// bucket is one bucket of one store.
type bucket struct {
	name      string
	client    *s3.Client // for all requests that requests does not handle
	reader    *reader
	requests  requester // reader, or viaSDK
	transport *http.Transport
	payer     types.RequestPayer
	extras    extras
	unset     bool // no endpoint is set, so AWS is used
	log       *slog.Logger
	renew     func() bool // makes the next request reload the credentials; false: they cannot have changed. May be nil
	rejected  func() bool // the same, if the files with the credentials have changed. May be nil

	// If-None-Match is honored: for single requests, and for multipart uploads.
	decidesOne, decidesParts bool
	matches                  bool // If-Match replaces atomically

	sums      atomic.Bool            // writes carry a checksum
	sumsMayGo bool                   // until the store refuses them
	answers   [operations]sumAnswers // to requests with a checksum
	byDirs    atomic.Bool            // listings proceed by directory, because the server does not use byte order
	exists    atomic.Bool            // the bucket is known to exist
}

var (
	_ backends.Backend     = (*bucket)(nil)
	_ backends.PartCreator = (*bucket)(nil)
	_ backends.PageLister  = (*bucket)(nil)
)

// Capabilities implements backends.Backend. Versions are pinned by If-Match, new keys by
// If-None-Match; see IfAbsent in the package comment.
func (b *bucket) Capabilities() backends.Capabilities {
	return backends.Capabilities{
		AtomicReplace: true, ConditionalCreate: b.decidesOne, Guard: b.guard(), PinnedReads: true,
		Parallelism: 8, MaxParallelism: maxParallelism, Hedged: true, PartSize: partSize, MaxParts: 10_000, OneRequest: objectstore.SmallObject,
		Checksum: backends.CRC64NVME,
	}
}

// Close closes the idle connections.
func (b *bucket) Close() error {
	b.reader.client.CloseIdleConnections() // and those of the transport
	return nil
}

// probeTimeout is the timeout of the versioning query when a bucket is opened.
const probeTimeout = 10 * time.Second

// versioned reports whether the bucket has or had versioning. If that is unknown, it returns true, which
// counts until the process ends. So a store that is only busy, or breaks a connection, is queried again. Any
// other problem will show again with the first real request.
func (b *bucket) versioned(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for wait := 100 * time.Millisecond; ; wait *= 2 {
		out, err := b.client.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &b.name})
		if err == nil {
			return out.Status != ""
		}
		err = b.explain("open", "", err)
		if wait <= longestProbePause && busy(err) {
			select {
			case <-ctx.Done():
			case <-time.After(wait):
				continue
			}
		}
		b.log.Debug("cannot read whether the bucket has versioning, assuming that it has", "bucket", b.name, "error", err)
		return true
	}
}

// longestProbePause ends the queries after some three seconds.
const longestProbePause = 1600 * time.Millisecond

// busy reports whether a store that is there may answer the same request in a moment.
func busy(err error) bool {
	var dial *net.OpError
	refused := errors.As(err, &dial) && dial.Op == "dial"
	return backends.KindOf(err) == backends.Throttled || backends.KindOf(err) == backends.Unavailable && !refused
}

// Stat implements backends.Source. The object includes the checksum if the store knows it.
func (b *bucket) Stat(ctx context.Context, key string) (backends.Object, error) {
	out, err := b.head(ctx, key)
	if err != nil {
		return backends.Object{}, b.explain("stat", key, b.reason(ctx, err))
	}
	b.exists.Store(true)
	return b.described(key, out), nil
}

// described returns the object of a HEAD response.
func (*bucket) described(key string, out *s3.HeadObjectOutput) backends.Object {
	return backends.Object{
		Key: key, Size: value(out.ContentLength), ModTime: value(out.LastModified), Version: version(out.ETag),
		Sum: wholeSum(types.Checksum{
			ChecksumType: out.ChecksumType, ChecksumCRC64NVME: out.ChecksumCRC64NVME, ChecksumCRC32C: out.ChecksumCRC32C,
			ChecksumCRC32: out.ChecksumCRC32, ChecksumSHA256: out.ChecksumSHA256, ChecksumSHA1: out.ChecksumSHA1,
		}),
	}
}

func (b *bucket) head(ctx context.Context, key string) (*s3.HeadObjectOutput, error) {
	c := &b.extras.customer
	return b.client.HeadObject(ctx, &s3.HeadObjectInput{
		Bucket: &b.name, Key: &key, RequestPayer: b.payer, ChecksumMode: types.ChecksumModeEnabled,
		SSECustomerAlgorithm: of(c.algorithm), SSECustomerKey: of(c.key), SSECustomerKeyMD5: of(c.sum),
	})
}

// reason finds the details that a HEAD response lacks, as it has no body: whether the bucket is
// missing rather than the object, or what is wrong with the credentials. Once the bucket is known
// to exist, a 404 means that the object is missing.
func (b *bucket) reason(ctx context.Context, err error) error {
	switch serverErrorOf(err).status {
	case http.StatusNotFound:
		if b.exists.Load() {
			return err
		}
	case http.StatusForbidden, http.StatusBadRequest, http.StatusMovedPermanently:
	default:
		return err
	}
	why := b.requests.probe(ctx)
	if why == nil {
		b.exists.Store(true)
	}
	said := serverErrorOf(why)
	if said.status == http.StatusBadRequest && serverErrorOf(err).status == http.StatusBadRequest {
		return why // it is not about the object
	}
	if said.code == "NoSuchBucket" || words[said.code] != "" || said.page || connection(why) != nil {
		return why
	}
	return err
}

func (b *bucket) noBucket(op, key string) error {
	return backends.Errorf(backends.NotExist, op, key, "bucket %q does not exist", b.name)
}

// Delete removes one object with a request of its own. The request for several needs checksums that
// some stores do not accept.
func (b *bucket) Delete(ctx context.Context, key string) error {
	_, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.name, Key: &key, RequestPayer: b.payer})
	switch code := serverErrorOf(err).code; {
	case err == nil, code == "NoSuchKey":
		return nil
	case strings.HasSuffix(key, "/") && strings.HasSuffix(code, "DirectoryNotEmpty"):
		return nil // a gateway to files means its directory, which is not an object
	}
	return b.explain("delete", key, err)
}

// version returns an ETag without quotes. A weak ETag keeps its prefix.
func version(etag *string) backends.Version {
	return backends.Version(strings.Trim(value(etag), `"`))
}

// wholeSum returns the best checksum that covers all bytes. Composite checksums are marked by
// their type, or by a trailing "-" and the number of parts.
func wholeSum(reported types.Checksum) backends.Checksum {
	if reported.ChecksumType == types.ChecksumTypeComposite {
		return backends.Checksum{}
	}
	for _, sum := range [...]struct { // best first
		algorithm backends.Algorithm
		text      *string
	}{
		{backends.CRC64NVME, reported.ChecksumCRC64NVME},
		{backends.CRC32C, reported.ChecksumCRC32C},
		{backends.CRC32, reported.ChecksumCRC32},
		{backends.SHA256, reported.ChecksumSHA256},
		{backends.SHA1, reported.ChecksumSHA1},
	} {
		if sum.text == nil {
			continue
		}
		if raw, err := base64.StdEncoding.DecodeString(*sum.text); err == nil && len(raw) == sum.algorithm.Size() {
			return backends.Checksum{Algorithm: sum.algorithm, Value: hex.EncodeToString(raw)}
		}
	}
	return backends.Checksum{}
}

// value returns *p, or the zero value if p is nil.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// apiOptions modify every request of the SDK.
var apiOptions = []func(*middleware.Stack) error{noAcceptEncoding}

// noAcceptEncoding removes a header that the SDK would sign and that proxies change, including
// Google's. The transport does not request compression anyway.
func noAcceptEncoding(stack *middleware.Stack) error {
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("NoAcceptEncoding",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
			if r, ok := in.Request.(*smithyhttp.Request); ok {
				r.Header.Del("Accept-Encoding")
			}
			return next.HandleFinalize(ctx, in)
		}), "Signing", middleware.Before)
}

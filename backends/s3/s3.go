package s3

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/stager-dev/stager/backends"
)

// partSize is a length at which a request's own cost no longer shows.
const partSize = 16 << 20

// maxParallelism is beyond what brought more, with 20 ms to the store.
const maxParallelism = 512

// bucket is one bucket of one store.
type bucket struct {
	name      string
	client    *s3.Client // for all that reader does not do
	reader    *reader
	transport *http.Transport
	payer     types.RequestPayer
	unset     bool // no endpoint is set, so that AWS is asked
	log       *slog.Logger
	renew     func() bool // has the next request read the credentials again; false: they cannot be others. May be nil

	// If-None-Match decides whether a key is written: of one request, and of parts.
	decidesOne, decidesParts bool
	matches                  bool // If-Match decides whether a key is replaced, in one step

	sums      atomic.Bool            // writes carry a checksum
	sumsMayGo bool                   // they do until the store refuses
	answers   [operations]sumAnswers // to requests with a checksum
	byDirs    atomic.Bool            // lists are made directory by directory, since the server's order is not that of the bytes
	exists    atomic.Bool            // the bucket was seen
}

var (
	_ backends.Backend     = (*bucket)(nil)
	_ backends.PartCreator = (*bucket)(nil)
)

// Capabilities are S3's: versions are pinned by If-Match, keys by If-None-Match, see the
// package comment on IfAbsent.
func (b *bucket) Capabilities() backends.Capabilities {
	return backends.Capabilities{
		AtomicReplace: true, ConditionalCreate: b.decidesOne, Guard: b.guard(), PinnedReads: true,
		Parallelism: 8, MaxParallelism: maxParallelism, Hedged: true, PartSize: partSize, MaxParts: 10_000,
		Checksum: backends.CRC64NVME,
	}
}

// Close ends the idle connections.
func (b *bucket) Close() error {
	b.reader.client.CloseIdleConnections() // and those of the transport
	return nil
}

// probeTimeout is how long opening a bucket waits to learn of its versioning.
const probeTimeout = 10 * time.Second

// versioned asks whether the bucket has versioning, or had. One that does not tell is
// taken to; whatever is wrong shows again with the first request that matters.
func (b *bucket) versioned(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	out, err := b.client.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &b.name})
	if err == nil {
		return out.Status != ""
	}
	b.log.Debug("the bucket does not tell whether it has versioning, so it is taken to have it", "bucket", b.name, "error", b.explain("open", "", err))
	return true
}

// Stat describes one object, with the checksum of its bytes if the store knows it.
func (b *bucket) Stat(ctx context.Context, key string) (backends.Object, error) {
	out, err := b.head(ctx, key)
	if err != nil {
		return backends.Object{}, b.explain("stat", key, b.reason(ctx, err))
	}
	b.exists.Store(true)
	return b.described(key, out), nil
}

// described is the object that an answer to HEAD describes.
func (*bucket) described(key string, out *s3.HeadObjectOutput) backends.Object {
	return backends.Object{
		Key: key, Size: value(out.ContentLength), ModTime: value(out.LastModified), Version: version(out.ETag),
		Sum: wholeSum(out.ChecksumType, out.ChecksumCRC64NVME, out.ChecksumCRC32C, out.ChecksumCRC32, out.ChecksumSHA256, out.ChecksumSHA1),
	}
}

func (b *bucket) head(ctx context.Context, key string) (*s3.HeadObjectOutput, error) {
	return b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.name, Key: &key, RequestPayer: b.payer, ChecksumMode: types.ChecksumModeEnabled})
}

// reason finds out what an answer to HEAD, which has no body, does not say: that the
// bucket is missing, not the object, or what is wrong with the credentials. A
// missing object is taken for that once the bucket has been seen.
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
	why := b.reader.probe(ctx)
	if why == nil {
		b.exists.Store(true)
	}
	said := serverErrorOf(why)
	if said.code == "NoSuchBucket" || words[said.code] != "" || said.page || connection(why) != nil {
		return why
	}
	return err
}

func (b *bucket) noBucket(op, key string) error {
	return backends.Errorf(backends.NotExist, op, key, "bucket %q does not exist", b.name)
}

// Delete removes one object by a request of its own: the one for many needs
// checksums that some stores do not accept.
func (b *bucket) Delete(ctx context.Context, key string) error {
	_, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.name, Key: &key, RequestPayer: b.payer})
	switch code := serverErrorOf(err).code; {
	case err == nil, code == "NoSuchKey":
		return nil
	case strings.HasSuffix(key, "/") && strings.HasSuffix(code, "DirectoryNotEmpty"):
		return nil // a gateway to files means its directory, which is no object
	}
	return b.explain("delete", key, err)
}

// version is an ETag without its quotes. A weak one keeps its mark.
func version(etag *string) backends.Version {
	return backends.Version(strings.Trim(value(etag), `"`))
}

// wholeSum is the first checksum that is of all bytes. Sums of parts' sums say so
// by their type, or by a "-" and the number of parts at the end.
func wholeSum(kind types.ChecksumType, crc64nvme, crc32c, crc32, sha256, sha1 *string) backends.Checksum {
	if kind == types.ChecksumTypeComposite {
		return backends.Checksum{}
	}
	for _, told := range []struct {
		algorithm backends.Algorithm
		sum       *string
	}{
		{backends.CRC64NVME, crc64nvme},
		{backends.CRC32C, crc32c},
		{backends.CRC32, crc32},
		{backends.SHA256, sha256},
		{backends.SHA1, sha1},
	} {
		if raw, err := base64.StdEncoding.DecodeString(value(told.sum)); err == nil && len(raw) == told.algorithm.New().Size() {
			return backends.Checksum{Algorithm: told.algorithm, Value: hex.EncodeToString(raw)}
		}
	}
	return backends.Checksum{}
}

// value is what p points to, or nothing.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// apiOptions change what the SDK does with every request.
var apiOptions = []func(*middleware.Stack) error{noAcceptEncoding}

// noAcceptEncoding drops a header that the SDK would sign and that proxies change,
// Google's among them. The transport asks for no compression anyway.
func noAcceptEncoding(stack *middleware.Stack) error {
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("NoAcceptEncoding",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
			if r, ok := in.Request.(*smithyhttp.Request); ok {
				r.Header.Del("Accept-Encoding")
			}
			return next.HandleFinalize(ctx, in)
		}), "Signing", middleware.Before)
}

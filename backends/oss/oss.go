package oss

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/xml"
	"iter"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aliyun/aliyun-oss-go-sdk/oss"

	"github.com/stager-dev/stager/backends"
)

// partSize is a length at which a request's own cost no longer shows.
const partSize = 16 << 20

// bucket is one bucket.
type bucket struct {
	name        string
	client      *oss.Bucket
	transport   *http.Transport
	credentials *credentials
	log         *slog.Logger
	conditional bool // the bucket has no versioning, so x-oss-forbid-overwrite decides
}

var (
	_ backends.Backend     = (*bucket)(nil)
	_ backends.PartCreator = (*bucket)(nil)
)

// Capabilities are those of OSS; see the package comment on IfAbsent.
func (b *bucket) Capabilities() backends.Capabilities {
	guard := backends.GuardNone
	if b.conditional {
		guard = backends.GuardClaim
	}
	return backends.Capabilities{
		AtomicReplace: true, ConditionalCreate: b.conditional, Guard: guard, PinnedReads: true,
		Parallelism: 32, Hedged: true, PartSize: partSize, MaxParts: 10_000,
		Checksum: backends.CRC64ECMA,
	}
}

// Close ends the idle connections.
func (b *bucket) Close() error {
	b.transport.CloseIdleConnections()
	return nil
}

// with are the options of a request: its context, for which the credentials are
// fetched, and more.
func (b *bucket) with(ctx context.Context, more ...oss.Option) ([]oss.Option, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if err := b.credentials.fetch(ctx); err != nil {
		return nil, err
	}
	return append(more, oss.WithContext(ctx)), nil
}

// decidesAlone asks whether the bucket lets a write depend on its key being free: it
// does without versioning. What cannot be learned is not promised; whatever is wrong
// shows again with the first request that matters.
func (b *bucket) decidesAlone(ctx context.Context) bool {
	status, err := b.versioning(ctx)
	if err == nil {
		return status == ""
	}
	b.log.Debug("the bucket does not tell whether it has versioning, so it is taken to have it", "bucket", b.name, "error", b.explain("open", "", err))
	return false
}

// versioning asks for the bucket's. The SDK's own method heeds no context, and waits a
// minute for a server that is silent.
func (b *bucket) versioning(ctx context.Context) (status string, err error) {
	if err := b.credentials.fetch(ctx); err != nil {
		return "", err
	}
	resp, err := b.client.Client.Conn.DoWithContext(ctx, http.MethodGet, b.name, "",
		map[string]any{"versioning": nil}, nil, nil, 0, nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() // it was read
	var out oss.GetBucketVersioningResult
	err = xml.NewDecoder(resp.Body).Decode(&out)
	return out.Status, err
}

// List asks for page after page, each when the one before has been taken.
func (b *bucket) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		last, token := "", ""
		for {
			page, err := b.page(ctx, prefix, token)
			if err != nil {
				yield(backends.Object{}, b.explain("list", prefix, err))
				return
			}
			for i := range page.Objects {
				entry := &page.Objects[i]
				if entry.Key <= last {
					yield(backends.Object{}, backends.Errorf(backends.Unsupported, "list", prefix,
						"the server lists keys out of order (%q after %q), so none could be told from a missing one", entry.Key, last))
					return
				}
				last = entry.Key
				if entry.Size == 0 && strings.HasSuffix(entry.Key, "/") {
					continue // a directory of a graphical tool
				}
				if backends.IsClaim(entry.Key) {
					continue
				}
				if !yield(backends.Object{Key: entry.Key, Size: entry.Size, ModTime: entry.LastModified, Version: version(entry.ETag)}, nil) {
					return
				}
			}
			if !page.IsTruncated {
				return
			}
			if page.NextContinuationToken == "" || page.NextContinuationToken == token {
				yield(backends.Object{}, backends.Errorf(backends.Unsupported, "list", prefix,
					"the server says that the list goes on but not where"))
				return
			}
			token = page.NextContinuationToken
		}
	}
}

// perPage is the most that OSS lists at once.
const perPage = 1000

// page asks for one page, url-encoded since XML has no way to write control
// characters; the SDK asks for that and decodes.
func (b *bucket) page(ctx context.Context, prefix, token string) (oss.ListObjectsResultV2, error) {
	opts, err := b.with(ctx, oss.MaxKeys(perPage), oss.Prefix(prefix))
	if err != nil {
		return oss.ListObjectsResultV2{}, err
	}
	if token != "" {
		opts = append(opts, oss.ContinuationToken(token))
	}
	return b.client.ListObjectsV2(opts...)
}

// Stat describes one object, with the checksum of its bytes if the store knows it.
func (b *bucket) Stat(ctx context.Context, key string) (backends.Object, error) {
	h, err := b.head(ctx, key)
	if err != nil {
		return backends.Object{}, b.explain("stat", key, err)
	}
	return described(key, h), nil
}

func (b *bucket) head(ctx context.Context, key string) (http.Header, error) {
	opts, err := b.with(ctx)
	if err != nil {
		return nil, err
	}
	return b.client.GetObjectDetailedMeta(key, opts...)
}

// described is the object that the headers of an answer to HEAD speak of.
func described(key string, h http.Header) backends.Object {
	size, _ := strconv.ParseInt(h.Get("Content-Length"), 10, 64) // the transport has checked it
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil {
		modified = time.Time{}
	}
	return backends.Object{Key: key, Size: size, ModTime: modified, Version: version(h.Get("ETag")), Sum: sumOf(h)}
}

// Delete removes one object; OSS does not mind when it is not there.
func (b *bucket) Delete(ctx context.Context, key string) error {
	opts, err := b.with(ctx)
	if err == nil {
		err = b.client.DeleteObject(key, opts...)
	}
	if err == nil || codeOf(err) == "NoSuchKey" {
		return nil
	}
	return b.explain("delete", key, err)
}

// version is an ETag without its quotes.
func version(etag string) backends.Version {
	return backends.Version(strings.Trim(etag, `"`))
}

// sumOf is the checksum that an answer tells, which OSS writes as a decimal.
func sumOf(h http.Header) backends.Checksum {
	v, err := strconv.ParseUint(h.Get(oss.HTTPHeaderOssCRC64), 10, 64)
	if err != nil {
		return backends.Checksum{}
	}
	return backends.Checksum{Algorithm: backends.CRC64ECMA, Value: hex.EncodeToString(binary.BigEndian.AppendUint64(nil, v))}
}

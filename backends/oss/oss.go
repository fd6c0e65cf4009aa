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
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// partSize is large enough that the overhead of a request becomes negligible.
const partSize = 16 << 20

// bucket is one bucket.
type bucket struct {
	name        string
	client      *oss.Bucket
	transport   *http.Transport
	credentials *credentials
	log         *slog.Logger
	unset       bool // no endpoint is set, so the region's public one is used
	conditional bool // the bucket has no versioning, so x-oss-forbid-overwrite is honored
}

var (
	_ backends.Backend     = (*bucket)(nil)
	_ backends.PartCreator = (*bucket)(nil)
	_ backends.PageLister  = (*bucket)(nil)
)

// Capabilities implements backends.Backend; see IfAbsent in the package comment.
func (b *bucket) Capabilities() backends.Capabilities {
	guard := backends.GuardNone
	if b.conditional {
		guard = backends.GuardClaim
	}
	return backends.Capabilities{
		AtomicReplace: true, ConditionalCreate: b.conditional, Guard: guard, PinnedReads: true,
		Parallelism: 32, Hedged: true, PartSize: partSize, MaxParts: 10_000, OneRequest: objectstore.SmallObject,
		Checksum: backends.CRC64ECMA,
	}
}

// Close closes the idle connections.
func (b *bucket) Close() error {
	b.transport.CloseIdleConnections()
	return nil
}

// with returns the options of a request, including its context. It fetches the credentials first.
func (b *bucket) with(ctx context.Context, more ...oss.Option) ([]oss.Option, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if err := b.credentials.fetch(ctx); err != nil {
		return nil, err
	}
	return append(more, oss.WithContext(ctx)), nil
}

// decidesAlone reports whether the bucket honors x-oss-forbid-overwrite, that is, has no
// versioning. If that is unknown, it returns false. Any other problem will show again with the
// first real request.
func (b *bucket) decidesAlone(ctx context.Context) bool {
	status, err := b.versioning(ctx)
	if err == nil {
		return status == ""
	}
	b.log.Debug("cannot read whether the bucket has versioning, assuming that it has", "bucket", b.name, "error", b.explain("open", "", err))
	return false
}

// versioning returns the versioning status of the bucket. The SDK's own method ignores the context
// and waits a minute for a silent server.
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

// List requests page after page, each after the previous one was consumed.
func (b *bucket) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return b.ListAfter(ctx, prefix, "")
}

// ListAfter implements backends.PageLister.
func (b *bucket) ListAfter(ctx context.Context, prefix, after string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		last, token, begin := "", "", after
		var markers objectstore.Markers
		for {
			page, err := b.page(ctx, selection{prefix: prefix, after: begin}, token)
			if err != nil {
				yield(backends.Object{}, b.explain("list", prefix, err))
				return
			}
			for i := range page.Objects {
				entry := &page.Objects[i]
				if entry.Key <= last {
					yield(backends.Object{}, objectstore.Unordered(prefix, entry.Key, last))
					return
				}
				last = entry.Key
				marker := entry.Size == 0 && strings.HasSuffix(entry.Key, "/") // of a graphical tool
				if marker {
					markers.Add(entry.Key)
				}
				if markers.Next(ctx, entry.Key); marker {
					continue
				}
				if backends.IsClaim(entry.Key) {
					continue
				}
				if !yield(backends.Object{Key: entry.Key, Size: entry.Size, ModTime: entry.LastModified, Version: version(entry.ETag)}, nil) {
					return
				}
			}
			if !page.IsTruncated {
				markers.End(ctx)
				return
			}
			if page.NextContinuationToken == "" || page.NextContinuationToken == token {
				yield(backends.Object{}, backends.Errorf(backends.Unsupported, "list", prefix,
					"the list is truncated but has no continuation token"))
				return
			}
			token, begin = page.NextContinuationToken, ""
			if !backends.NextPage(ctx) {
				return
			}
		}
	}
}

// perPage is the maximum page size of OSS.
const perPage = 1000

// selection is what a listing lists.
type selection struct {
	prefix, delimiter string
	after             string // it begins behind this key; "": with the first one
}

// page requests one page. Keys are URL-encoded, since XML cannot represent control characters; the
// SDK requests and decodes that.
func (b *bucket) page(ctx context.Context, sel selection, token string) (oss.ListObjectsResultV2, error) {
	opts, err := b.with(ctx, oss.MaxKeys(perPage), oss.Prefix(sel.prefix))
	if err != nil {
		return oss.ListObjectsResultV2{}, err
	}
	if sel.delimiter != "" {
		opts = append(opts, oss.Delimiter(sel.delimiter))
	}
	if sel.after != "" {
		opts = append(opts, oss.StartAfter(sel.after))
	}
	if token != "" {
		opts = append(opts, oss.ContinuationToken(token))
	}
	return b.client.ListObjectsV2(opts...)
}

// Stat implements backends.Source. The object includes the checksum if the store knows it.
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

// described returns the object of a HEAD response.
func described(key string, h http.Header) backends.Object {
	size, _ := strconv.ParseInt(h.Get("Content-Length"), 10, 64) // the transport has validated it
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil {
		modified = time.Time{}
	}
	return backends.Object{Key: key, Size: size, ModTime: modified, Version: version(h.Get("ETag")), Sum: sumOf(h)}
}

// Delete removes one object. OSS accepts the deletion of a missing object.
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

// version returns an ETag without quotes.
func version(etag string) backends.Version {
	return backends.Version(strings.Trim(etag, `"`))
}

// sumOf returns the checksum in a response, which OSS writes in decimal.
func sumOf(h http.Header) backends.Checksum {
	v, err := strconv.ParseUint(h.Get(oss.HTTPHeaderOssCRC64), 10, 64)
	if err != nil {
		return backends.Checksum{}
	}
	return backends.Checksum{Algorithm: backends.CRC64ECMA, Value: hex.EncodeToString(binary.BigEndian.AppendUint64(nil, v))}
}

package gs

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"iter"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// partSize is large enough that the overhead of a request becomes negligible.
const partSize = 16 << 20

// maxParallelism is more than the highest useful concurrency over a connection with high latency.
const maxParallelism = 512

// bucket is one bucket.
type bucket struct {
	name        string
	client      client
	credentials *credentials
	log         *slog.Logger
	withoutXML  atomic.Bool // the server was found to have the JSON API alone
}

var (
	_ backends.Backend     = (*bucket)(nil)
	_ backends.PartCreator = (*bucket)(nil)
	_ backends.PageLister  = (*bucket)(nil)
	_ backends.KeyChecker  = (*bucket)(nil)
)

// Capabilities implements backends.Backend.
func (b *bucket) Capabilities() backends.Capabilities {
	return backends.Capabilities{
		AtomicReplace: true, ConditionalCreate: true, Guard: backends.GuardServer, PinnedReads: true,
		Parallelism: 32, MaxParallelism: maxParallelism, Hedged: true, PartSize: partSize, MaxParts: 10_000, OneRequest: objectstore.SmallObject,
		Checksum: backends.CRC32C,
	}
}

// Close closes the idle connections.
func (b *bucket) Close() error {
	b.client.http.CloseIdleConnections()
	return nil
}

// maxKey is the maximum length of a key in bytes.
const maxKey = 1024

// CheckKey implements backends.KeyChecker.
func (b *bucket) CheckKey(key string) error {
	invalid := func(why string) error {
		return backends.Errorf(backends.Invalid, "create", key, "Google Cloud Storage does not allow keys that %s", why)
	}
	switch {
	case key == "" || len(key) > maxKey:
		return invalid("are empty or exceed 1,024 bytes")
	case !utf8.ValidString(key):
		return invalid("are not UTF-8")
	case strings.ContainsAny(key, "\r\n"):
		return invalid("contain a line break")
	case key == "." || key == "..":
		return invalid("are \".\" or \"..\"")
	case strings.HasPrefix(key, ".well-known/acme-challenge/"):
		return invalid("start with .well-known/acme-challenge/")
	}
	return nil
}

// resource is an object of the JSON API.
type resource struct {
	Name        string
	Size        int64            `json:",string"`
	Generation  backends.Version `json:"generation"`
	TimeCreated time.Time
	CRC32C      string
	Metadata    map[string]string
}

// fields select those of a resource.
const fields = "name,size,generation,timeCreated,crc32c"

// object returns the object of a resource.
func (r *resource) object() backends.Object {
	return backends.Object{Key: r.Name, Size: r.Size, ModTime: r.TimeCreated, Version: r.Generation, Sum: sumOf(r.CRC32C)}
}

// sumOf returns the checksum that the store writes in base64.
func sumOf(text string) backends.Checksum {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) != 4 {
		return backends.Checksum{}
	}
	return backends.Checksum{Algorithm: backends.CRC32C, Value: hex.EncodeToString(raw)}
}

// sumIn returns the checksum in a response header, which may also contain an MD5.
func sumIn(h http.Header) backends.Checksum {
	for _, text := range strings.Split(strings.Join(h.Values("X-Goog-Hash"), ","), ",") {
		if sum, ok := strings.CutPrefix(strings.TrimSpace(text), "crc32c="); ok {
			return sumOf(sum)
		}
	}
	return backends.Checksum{}
}

// perPage is the maximum page size.
const perPage = 1000

// selection says what a listing lists.
type selection struct {
	prefix, delimiter, glob string
	from                    string // it begins with this name; "": with the first one
}

// page requests one page of a listing. dirs are the directories in a listing with a delimiter.
func (b *bucket) page(ctx context.Context, sel selection, token string) (items []resource, dirs []string, next string, err error) {
	q := b.inJSON(http.MethodGet, "o")
	q.query.Set("prefix", sel.prefix)
	q.query.Set("maxResults", strconv.Itoa(perPage))
	q.query.Set("fields", "nextPageToken,prefixes,items("+fields+")")
	if sel.delimiter != "" {
		q.query.Set("delimiter", sel.delimiter)
	}
	if sel.from != "" {
		q.query.Set("startOffset", sel.from)
	}
	if sel.glob != "" {
		q.query.Set("matchGlob", sel.glob)
	}
	if token != "" {
		q.query.Set("pageToken", token)
	}
	var out struct {
		NextPageToken string
		Items         []resource
		Prefixes      []string
	}
	err = b.client.json(ctx, q, &out)
	if err == nil && out.NextPageToken != "" && out.NextPageToken == token {
		err = backends.Errorf(backends.Unsupported, "list", sel.prefix, "the list repeats a page")
	}
	return out.Items, out.Prefixes, out.NextPageToken, err
}

// List requests page after page, each after the previous one was consumed.
func (b *bucket) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return b.ListAfter(ctx, prefix, "")
}

// ListAfter implements backends.PageLister.
func (b *bucket) ListAfter(ctx context.Context, prefix, after string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		last, token := "", ""
		var markers objectstore.Markers
		for {
			items, _, next, err := b.page(ctx, selection{prefix: prefix, from: after}, token)
			if err != nil {
				yield(backends.Object{}, b.explain("list", prefix, err))
				return
			}
			for i := range items {
				obj := items[i].object()
				if obj.Key == after && after != "" {
					continue
				}
				if obj.Key <= last {
					yield(backends.Object{}, objectstore.Unordered(prefix, obj.Key, last))
					return
				}
				last = obj.Key
				if isTemporary(obj.Key) {
					continue // an upload that is not published
				}
				marker := obj.Size == 0 && strings.HasSuffix(obj.Key, "/")
				if marker {
					markers.Add(obj.Key)
				}
				if markers.Next(ctx, obj.Key); marker {
					continue
				}
				if !yield(obj, nil) {
					return
				}
			}
			if token = next; token == "" {
				markers.End(ctx)
				return
			}
			if !backends.NextPage(ctx) {
				return
			}
		}
	}
}

// Stat implements backends.Source.
func (b *bucket) Stat(ctx context.Context, key string) (backends.Object, error) {
	r, err := b.stat(ctx, key)
	if err != nil {
		return backends.Object{}, b.explain("stat", key, err)
	}
	return r.object(), nil
}

func (b *bucket) stat(ctx context.Context, key string) (r resource, err error) {
	if b.CheckKey(key) != nil {
		return r, backends.Errorf(backends.NotExist, "stat", key, "%w", backends.ErrNothing)
	}
	q := b.inJSON(http.MethodGet, "o", key)
	q.query.Set("fields", fields+",metadata")
	err = b.client.json(ctx, q, &r)
	return r, err
}

// Delete removes one object.
func (b *bucket) Delete(ctx context.Context, key string) error {
	if b.CheckKey(key) != nil {
		return nil // no such object can exist
	}
	_, _, err := b.client.document(ctx, b.inJSON(http.MethodDelete, "o", key))
	if a := refusal(err); err == nil || a.kind() == backends.NotExist && !a.noBucket() && a.status == http.StatusNotFound {
		return nil
	}
	return b.explain("delete", key, err)
}

// temporary begins the end of a temporary name.
const temporary = ".stager-tmp-"

// temporaryForm matches the end of a temporary name.
var temporaryForm = regexp.MustCompile(`\.stager-tmp-[A-Z2-7]{26}$`)

// isTemporary reports whether key is that of an upload that is not published.
func isTemporary(key string) bool {
	return strings.Contains(key, temporary) && temporaryForm.MatchString(key)
}

// temporaryName returns the temporary name of a key. A key that is too long is shortened.
func temporaryName(key, random string) string {
	end := temporary + random
	for len(key)+len(end) > maxKey {
		_, n := utf8.DecodeLastRuneInString(key)
		key = key[:len(key)-n]
	}
	return key + end
}

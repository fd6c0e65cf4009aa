package http

import (
	"context"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// partSize is large enough that the overhead of a request becomes negligible.
const partSize = 16 << 20

// site is one web server. Keys are the paths of URLs, without the first "/".
type site struct {
	root        *url.URL
	fetcher     *objectstore.Fetcher
	credentials *credentials
	listed      map[string]entry // by key; nil: the server's index pages list the objects
}

var _ backends.Backend = (*site)(nil)

// entry is what is known of an object before any request.
type entry struct {
	at   *url.URL
	size int64 // -1: unknown
	sum  backends.Checksum
}

// Capabilities implements backends.Backend.
func (s *site) Capabilities() backends.Capabilities {
	return backends.Capabilities{PinnedReads: true, Parallelism: 8, MaxParallelism: 64, Hedged: true, PartSize: partSize}
}

// Close closes the idle connections.
func (s *site) Close() error {
	s.fetcher.CloseIdleConnections()
	return nil
}

// Create fails: these stores are only read.
func (s *site) Create(_ context.Context, key string, _ backends.CreateOptions) (backends.Writer, error) {
	return nil, s.readOnly("create", key)
}

// Delete fails: these stores are only read.
func (s *site) Delete(_ context.Context, key string) error { return s.readOnly("delete", key) }

func (s *site) readOnly(op, key string) error {
	return backends.Errorf(backends.Unsupported, op, key, "%s URLs can only be read", s.root.Scheme)
}

// entry returns where an object is.
func (s *site) entry(op, key string) (entry, error) {
	if e, ok := s.listed[key]; ok {
		return e, nil
	}
	if s.listed != nil || !objectstore.Passable(key) {
		return entry{}, backends.Errorf(backends.NotExist, op, key, "%w", backends.ErrNothing)
	}
	return entry{at: s.under(key), size: -1}, nil
}

// under returns the URL of a key.
func (s *site) under(key string) *url.URL {
	u := *s.root
	u.Path += key
	return &u
}

// header returns the header of a request for a URL.
func (s *site) header(at *url.URL) http.Header {
	// The bytes that are stored are wanted, not compressed ones, whose ranges mean nothing.
	h := http.Header{"Accept-Encoding": {"identity"}}
	if word := s.credentials.authorization(at); word != "" {
		h.Set("Authorization", word)
	}
	return h
}

// Stat implements backends.Source.
func (s *site) Stat(ctx context.Context, key string) (backends.Object, error) {
	e, err := s.entry("stat", key)
	if err != nil {
		return backends.Object{}, err
	}
	obj, err := s.stat(ctx, key, e)
	if err != nil {
		return backends.Object{}, s.explain("stat", key, e.at, err)
	}
	return obj, nil
}

func (s *site) stat(ctx context.Context, key string, e entry) (backends.Object, error) {
	header := s.header(e.at)
	res, from, err := s.fetcher.Fetch(ctx, http.MethodHead, e.at, header)
	if err == nil && refusesHead(res, e.at) {
		res.Body.Close() //nolint:errcheck // it has none
		// A signature may be valid for GET only.
		header = s.header(e.at)
		header.Set("Range", "bytes=0-0")
		res, from, err = s.fetcher.Fetch(ctx, http.MethodGet, e.at, header)
	}
	if err != nil {
		return backends.Object{}, err
	}
	defer res.Body.Close() // only its head matters
	size := res.ContentLength
	switch of := sizeIn(res.Header.Get("Content-Range")); {
	case res.StatusCode == http.StatusPartialContent, res.StatusCode == http.StatusRequestedRangeNotSatisfiable && of == 0:
		size = of
	case res.StatusCode != http.StatusOK:
		return backends.Object{}, objectstore.Refusal(res)
	}
	if from != e.at && strings.HasSuffix(from.Path, "/") {
		return backends.Object{}, backends.Errorf(backends.NotExist, "stat", key, "this is a directory, of which the server has an index at most")
	}
	if err := acceptable(key, res.Header); err != nil {
		return backends.Object{}, err
	}
	if size < 0 {
		return backends.Object{}, backends.Errorf(backends.Unsupported, "stat", key, "the server does not report the size, so a part that is missing would go unnoticed")
	}
	if e.size >= 0 && e.size != size {
		return backends.Object{}, backends.Errorf(backends.Corrupt, "stat", key, "the manifest says %d bytes, the server %d", e.size, size)
	}
	obj := backends.Object{Key: key, Size: size, Version: version(res.Header, size), Sum: e.sum}
	obj.Whole = res.StatusCode == http.StatusOK && !strings.EqualFold(res.Header.Get("Accept-Ranges"), "bytes")
	if at, err := http.ParseTime(res.Header.Get("Last-Modified")); err == nil {
		obj.ModTime = at
	}
	return obj, nil
}

// refusesHead reports whether the response to a HEAD request may be due to its method. Apache then
// has no length for an empty file.
func refusesHead(res *http.Response, at *url.URL) bool {
	switch res.StatusCode {
	case http.StatusOK:
		return res.ContentLength < 0
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	case http.StatusForbidden, http.StatusUnauthorized, http.StatusBadRequest:
		return at.RawQuery != ""
	}
	return false
}

// sizeIn returns the size of the object in a Content-Range header; -1 if it has none.
func sizeIn(contentRange string) int64 {
	_, text, _ := strings.Cut(contentRange, "/")
	size, err := strconv.ParseInt(text, 10, 64)
	if err != nil || size < 0 {
		return -1
	}
	return size
}

// version returns the version in a response: the ETag, or the time of the last change, or only the
// size.
func version(h http.Header, size int64) backends.Version {
	if tag := h.Get("ETag"); tag != "" {
		return backends.Version(tag)
	}
	if at := h.Get("Last-Modified"); at != "" {
		return backends.Version(at)
	}
	return backends.Version("size " + strconv.FormatInt(size, 10))
}

// sameVersion compares two versions. A server may call an ETag weak as long as a file is new.
func sameVersion(a, b backends.Version) bool {
	return strings.TrimPrefix(string(a), "W/") == strings.TrimPrefix(string(b), "W/")
}

// acceptable returns an error for a response whose bytes are not those of the object.
func acceptable(key string, h http.Header) error {
	if coding := strings.ToLower(h.Get("Content-Encoding")); coding != "" && coding != "identity" && !slices.Contains(codings[path.Ext(strings.ToLower(key))], coding) {
		return backends.Errorf(backends.Unsupported, "read", key, "the server sends other bytes than it stores (Content-Encoding: %s): switch that off for these files", objectstore.Shorten(coding))
	}
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type")) // an invalid one is not that of a page
	if kind == "text/html" && !slices.Contains(pages, path.Ext(strings.ToLower(key))) {
		return &pageError{}
	}
	return nil
}

// codings are the encodings by which servers describe files that are stored compressed.
var codings = map[string][]string{
	".gz": {"gzip", "x-gzip"}, ".tgz": {"gzip", "x-gzip"}, ".z": {"compress", "x-compress"},
	".bz2": {"bzip2", "x-bzip2"}, ".xz": {"xz", "x-xz"}, ".zst": {"zstd"}, ".br": {"br"},
}

// pages are the extensions of objects that are web pages.
var pages = []string{".html", ".htm", ".xhtml", ".shtml"}

// pageError means that the server sent a web page in place of an object, such as that of a login or
// an error.
type pageError struct{}

func (*pageError) Error() string {
	return "the server sent a web page (text/html) with status 200 in place of the object: check the URL, and whether a login is needed"
}

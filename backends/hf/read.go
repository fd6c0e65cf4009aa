package hf

import (
	"bytes"
	"context"
	"crypto/sha1" // as Git does; not for security
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// smallFile is the maximum size of a file that is read as a whole and compared with its Git blob.
// The Hub accepts no larger ones outside of LFS.
const smallFile = 16 << 20

// OpenRange reads a range of a large file from its signed location, and a small file as a whole.
func (r *repo) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	if objectstore.NoBytes(obj, off, n) {
		return http.NoBody, nil
	}
	if !objectstore.Passable(obj.Key) {
		return nil, backends.Errorf(backends.NotExist, "read", obj.Key, "%w", backends.ErrNothing)
	}
	body, err := r.open(ctx, obj, off, n)
	if err != nil {
		return nil, r.explain("read", obj.Key, err)
	}
	return body, nil
}

func (r *repo) open(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	blob := len(obj.Version) == hex.EncodedLen(sha1.Size)
	if blob && obj.Size <= smallFile {
		text, err := r.whole(ctx, obj)
		if err != nil {
			return nil, err
		}
		return newSmallBody(obj, text, off, n)
	}
	header := make(http.Header)
	if off > 0 || n >= 0 && n != obj.Size {
		header.Set("Range", "bytes="+objectstore.Range(off, n))
	}
	res, err := r.download(ctx, obj, header) //nolint:bodyclose // BodyOf does, or who reads
	if err != nil {
		return nil, err
	}
	return objectstore.BodyOf(ctx, res, obj, off, n, r.explain)
}

// sameFile compares the hash of a file with that of the listing.
func sameFile(hash string, obj backends.Object) error {
	if obj.Version != "" && hash != string(obj.Version) {
		return backends.Errorf(backends.Changed, "read", obj.Key, "the file has the hash %s, not %s as listed", objectstore.Shorten(hash), obj.Version)
	}
	return nil
}

// whole returns the bytes of a small file, which are those of its Git blob.
func (r *repo) whole(ctx context.Context, obj backends.Object) ([]byte, error) {
	res, err := r.download(ctx, obj, make(http.Header))
	if err != nil {
		return nil, err
	}
	defer res.Body.Close() // it was read
	text, err := io.ReadAll(io.LimitReader(objectstore.Moving(ctx, res.Body), obj.Size+1))
	if err != nil {
		return nil, err
	}
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", len(text))
	h.Write(text)
	if got := hex.EncodeToString(h.Sum(nil)); got != string(obj.Version) {
		return nil, backends.Errorf(backends.Corrupt, "read", obj.Key, "%d bytes have the Git hash %s, not %s", len(text), got, obj.Version)
	}
	return text, nil
}

// smallBody is a range of a file that was compared with its Git blob. Its checksum is that of the
// bytes.
type smallBody struct {
	io.Reader
	sum backends.Checksum
}

func newSmallBody(obj backends.Object, text []byte, off, n int64) (io.ReadCloser, error) {
	if off >= int64(len(text)) {
		return nil, objectstore.BeyondEnd(obj.Key, off)
	}
	sum := sha256.Sum256(text)
	body := &smallBody{sum: backends.Checksum{Algorithm: backends.SHA256, Value: hex.EncodeToString(sum[:])}}
	rest := text[off:]
	body.Reader = bytes.NewReader(rest)
	if n >= 0 && n <= int64(len(rest)) {
		body.Reader = bytes.NewReader(rest[:n])
	} else if n >= 0 {
		body.Reader = io.MultiReader(body.Reader, tooShort{})
	}
	return body, nil
}

// Close implements io.Closer.
func (*smallBody) Close() error { return nil }

// ObjectChecksum implements backends.ChecksumReader.
func (b *smallBody) ObjectChecksum() backends.Checksum { return b.sum }

// tooShort is what follows the end of a file.
type tooShort struct{}

func (tooShort) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// location is where a large file lies for a while.
type location struct {
	at   *url.URL // signed
	hash string
}

// download requests a file, from its known location or by way of the Hub.
func (r *repo) download(ctx context.Context, obj backends.Object, header http.Header) (*http.Response, error) {
	if known, ok := r.location(obj.Key); ok {
		if err := sameFile(known.hash, obj); err != nil {
			return nil, err
		}
		if res, err := r.from(ctx, known.at, obj.Key, header); err == nil || !expired(err) {
			return res, err
		}
		r.forget(obj.Key)
	}
	res, at, err := r.atHub(ctx, http.MethodGet, obj.Key, header)
	if err != nil {
		return nil, err
	}
	hash := hashIn(res.Header)
	if err = sameFile(hash, obj); err != nil || at != nil {
		objectstore.Discard(res)
	}
	switch {
	case err != nil:
		return nil, err
	case at == nil:
		return res, success(res, obj.Key)
	}
	res, err = r.from(ctx, at, obj.Key, header)
	switch {
	case err == nil:
		r.remember(obj.Key, location{at, hash})
	case expired(err):
		err = backends.Errorf(backends.Unavailable, "read", obj.Key, "the server of the file rejects the location that the Hub gave")
	}
	return res, err
}

// from requests a file from its location.
func (r *repo) from(ctx context.Context, at *url.URL, key string, header http.Header) (*http.Response, error) {
	res, _, err := r.fetcher.Fetch(ctx, http.MethodGet, at, header.Clone())
	if err == nil {
		err = success(res, key)
	}
	if err != nil {
		return nil, err
	}
	return res, nil
}

// hashIn returns the hash of the file in a response of the Hub.
func hashIn(h http.Header) string {
	hash := h.Get("X-Linked-Etag")
	if hash == "" {
		hash = h.Get("ETag")
	}
	return strings.Trim(strings.TrimPrefix(hash, "W/"), `"`)
}

// success returns an error and closes the response if it has no bytes of a file.
func success(res *http.Response, key string) error {
	switch res.StatusCode {
	case http.StatusOK, http.StatusPartialContent:
		return nil
	case http.StatusRequestedRangeNotSatisfiable:
		objectstore.Discard(res)
		return objectstore.BeyondEnd(key, 0)
	}
	return objectstore.Refusal(res)
}

// expired reports whether the error may be that of a signature.
func expired(err error) bool {
	var status *objectstore.StatusError
	return errors.As(err, &status) && (status.Kind() == backends.Permission || status.Kind() == backends.Invalid)
}

// atHub requests a file from the Hub. It returns the response and the location to which it
// redirects on another host; nil if it is the file itself.
func (r *repo) atHub(ctx context.Context, method, key string, header http.Header) (*http.Response, *url.URL, error) {
	at := r.file(key)
	for range 5 {
		res, err := r.ask(ctx, method, at, header.Clone())
		if err != nil {
			return nil, nil, err
		}
		next, err := objectstore.Redirect(res, at)
		switch {
		case err != nil:
			objectstore.Discard(res)
			return nil, nil, err
		case next != nil && (!objectstore.SameHost(next, at) || res.Header.Get("X-Linked-Etag") != ""):
			return res, next, nil
		case next != nil: // a repository that was renamed
			objectstore.Discard(res)
			at = next
			continue
		case res.StatusCode >= http.StatusMultipleChoices && res.StatusCode != http.StatusRequestedRangeNotSatisfiable:
			return nil, nil, objectstore.Refusal(res)
		}
		return res, nil, nil
	}
	return nil, nil, backends.Errorf(backends.Unsupported, "read", key, "the Hub redirects too often")
}

func (r *repo) location(key string) (known location, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok = r.locations[key]
	return known, ok
}

// mostLocations is how many locations are remembered.
const mostLocations = 1000

func (r *repo) remember(key string, at location) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.locations) >= mostLocations {
		clear(r.locations)
	}
	r.locations[key] = at
}

func (r *repo) forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.locations, key)
}

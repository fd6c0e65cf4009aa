package objectstore

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
)

// A Fetcher sends GET and HEAD requests to any number of hosts and follows redirects. It serves
// protocols that only read. It is safe for concurrent use.
type Fetcher struct {
	transport *http.Transport

	mu      sync.Mutex // guards clients
	clients map[string]*Client
}

// maxRedirects is how many redirects one request follows.
const maxRedirects = 10

// NewFetcher returns a Fetcher that dials with a transport from NewTransport.
func NewFetcher(transport *http.Transport) *Fetcher {
	return &Fetcher{transport: transport, clients: make(map[string]*Client)}
}

// Fetch sends a request and returns the response to it or to its last redirect, whatever its
// status, and the URL of that response. A redirect to another host carries no Authorization header.
// Errors contain no URLs, whose queries may be secret.
func (f *Fetcher) Fetch(ctx context.Context, method string, at *url.URL, header http.Header) (*http.Response, *url.URL, error) {
	for range maxRedirects {
		res, err := f.Send(ctx, method, at, header)
		if err != nil {
			return nil, at, err
		}
		next, err := Redirect(res, at)
		if next == nil && err == nil {
			return res, at, nil
		}
		Discard(res)
		if err != nil {
			return nil, at, err
		}
		if SameHost(at, next) {
			at = next
			continue
		}
		header = header.Clone()
		header.Del("Authorization")
		at = next
	}
	return nil, at, backends.Errorf(backends.Unsupported, "read", "", "the server redirects more than %d times", maxRedirects)
}

// Send is Fetch without redirects.
func (f *Fetcher) Send(ctx context.Context, method string, at *url.URL, header http.Header) (*http.Response, error) {
	client, err := f.client(at)
	if err != nil {
		return nil, err
	}
	header.Set("User-Agent", "stager")
	req := &http.Request{Method: method, URL: at, Host: at.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	return client.Send(req.WithContext(ctx), nil)
}

// Discard reads a short body to its end, so that the connection is kept, and closes it.
func Discard(res *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, refusalLimit)) // nothing in it matters
	_ = res.Body.Close()                                               // the same
}

// refusalLimit is how many bytes of the body of an error or a redirect are read.
const refusalLimit = 64 << 10

// client returns the client for the host of a URL.
func (f *Fetcher) client(at *url.URL) (*Client, error) {
	if at.Scheme != "http" && at.Scheme != "https" || at.Hostname() == "" {
		return nil, backends.Errorf(backends.Unsupported, "read", "", "the server redirects to something other than HTTP")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	name := at.Scheme + "://" + at.Host
	if known := f.clients[name]; known != nil {
		return known, nil
	}
	c, err := NewClient(at, f.transport)
	if err == nil {
		f.clients[name] = c
	}
	return c, err
}

// CloseIdleConnections closes the idle connections to all hosts.
func (f *Fetcher) CloseIdleConnections() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.clients {
		c.CloseIdleConnections()
	}
}

// Redirect returns the URL to which a response redirects; nil if it does not.
func Redirect(res *http.Response, at *url.URL) (*url.URL, error) {
	switch res.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil, nil
	}
	to, err := at.Parse(res.Header.Get("Location"))
	switch {
	case err != nil || res.Header.Get("Location") == "":
		return nil, backends.Errorf(backends.Unsupported, "read", "", "the server redirects to an invalid location")
	case at.Scheme == "https" && to.Scheme == "http":
		return nil, backends.Errorf(backends.Invalid, "read", "", "the server redirects from HTTPS to plain HTTP, where anybody can change the bytes")
	}
	to.User, to.Fragment, to.RawFragment = nil, "", ""
	Sendable(to)
	return to, nil
}

// Sendable escapes the spaces in a query, which servers write into locations, so that a request can
// carry it.
func Sendable(u *url.URL) { u.RawQuery = strings.ReplaceAll(u.RawQuery, " ", "%20") }

// SameHost reports whether two URLs have the same scheme, host and port.
func SameHost(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(hostPort(a), hostPort(b))
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Hostname() + ":" + port
}

// A StatusError is an error response to a Fetcher.
type StatusError struct {
	Status     int
	Header     http.Header
	Page       bool // the body is a web page
	Body       []byte
	RetryAfter time.Duration

	request *http.Request
}

// Refusal reads the body of an error response and closes it.
func Refusal(res *http.Response) *StatusError {
	defer res.Body.Close()
	e := &StatusError{Status: res.StatusCode, Header: res.Header, Page: strings.HasPrefix(res.Header.Get("Content-Type"), "text/html"), request: res.Request}
	e.Body, _ = io.ReadAll(io.LimitReader(res.Body, refusalLimit)) // the status suffices
	e.RetryAfter = RetryAfter(res.Header, time.Now())
	return e
}

// RetryAfter returns the delay that a response requests, in seconds or until a date; 0 if none.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if s, err := strconv.Atoi(text); err == nil {
		return time.Duration(max(s, 0)) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return max(at.Sub(now), 0)
}

// Renewed reads the credentials again by load, and reports whether the refused request would carry
// another Authorization header now, of which authorization returns the value for a URL. What other
// requests have read since does not matter: the credentials may have been renewed while this one was
// under way.
func (e *StatusError) Renewed(load func() error, authorization func(*url.URL) string) bool {
	return load() == nil && e.request != nil && authorization(e.request.URL) != e.request.Header.Get("Authorization")
}

func (e *StatusError) Error() string {
	return strings.TrimSpace("the server returned HTTP " + strconv.Itoa(e.Status) + " " + http.StatusText(e.Status))
}

// Kind maps the status to a kind.
func (e *StatusError) Kind() backends.Kind {
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		return backends.Permission
	case http.StatusNotFound, http.StatusGone:
		return backends.NotExist
	case http.StatusPreconditionFailed:
		return backends.Changed
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return backends.Throttled
	case http.StatusMethodNotAllowed, http.StatusNotImplemented, http.StatusNotAcceptable, http.StatusHTTPVersionNotSupported:
		return backends.Unsupported
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusConflict, http.StatusMisdirectedRequest:
		return backends.Unavailable
	}
	switch {
	case e.Status >= 500:
		return backends.Unavailable
	case e.Status >= 400:
		return backends.Invalid
	}
	return backends.Unsupported // a success that is none for this request, or a redirect that cannot be followed
}

// Fetched converts an error of a Fetcher to a *backends.Error. words returns a better message than
// that of a status, or nil.
func Fetched(op, key string, err error, words func(*StatusError) error) error {
	var (
		local  *backends.LocalError
		known  *backends.Error
		status *StatusError
	)
	switch {
	case errors.As(err, &local):
		return local
	case errors.As(err, &known):
		out := *known
		out.Op, out.Key = op, key
		return &out
	case errors.As(err, &status):
		out := &backends.Error{Op: op, Key: key, Kind: status.Kind(), RetryAfter: status.RetryAfter}
		if status.Status == http.StatusProxyAuthRequired {
			out.Err = ErrProxyCredentials
		} else if out.Err = words(status); out.Err == nil {
			out.Err = status
		}
		return out
	}
	kind, ok := Known(err)
	if !ok {
		kind = NoResponse(err)
	}
	if said := Connection(err); said != nil {
		return &backends.Error{Op: op, Key: key, Kind: kind, Err: said}
	}
	return &backends.Error{Op: op, Key: key, Kind: kind, Err: Innermost(err)}
}

// Passable reports whether a key is the path of a URL that no server or proxy changes.
func Passable(key string) bool {
	return !slices.ContainsFunc(strings.Split(key, "/"), func(part string) bool { return part == "" || part == "." || part == ".." }) &&
		!strings.Contains(key, "\x00")
}

// BodyOf returns n bytes of obj at off from a response with status 200 or 206, and closes the response
// after an error. A server that ignored the range sends the bytes before, too. The caller has compared
// the versions.
func BodyOf(ctx context.Context, res *http.Response, obj backends.Object, off, n int64, explain func(op, key string, err error) error) (io.ReadCloser, error) {
	body, err := bodyOf(ctx, res, obj, off, n, explain)
	if err != nil {
		_ = res.Body.Close() // it is thrown away
		return nil, err
	}
	return body, nil
}

func bodyOf(ctx context.Context, res *http.Response, obj backends.Object, off, n int64, explain func(op, key string, err error) error) (io.ReadCloser, error) {
	answer := Response{Status: res.StatusCode, Version: obj.Version, Length: res.ContentLength, ContentRange: res.Header.Get("Content-Range")}
	if off == 0 || answer.partial() {
		left, err := answer.Wanted(obj, off, n)
		if err != nil {
			return nil, err
		}
		return NewBody(ctx, obj.Key, res.Body, left, backends.Checksum{}, explain), nil
	}
	all, err := answer.Wanted(obj, 0, -1)
	if err != nil {
		return nil, err
	}
	if off >= all {
		return nil, BeyondEnd(obj.Key, off)
	}
	if n < 0 {
		n = all - off
	}
	body := NewBody(ctx, obj.Key, res.Body, off+n, backends.Checksum{}, explain)
	if _, err := io.CopyN(io.Discard, Moving(ctx, body), off); err != nil {
		return nil, err
	}
	return body, nil
}

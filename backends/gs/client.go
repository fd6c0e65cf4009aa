package gs

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// client sends the requests of both APIs.
type client struct {
	http        *objectstore.Client
	base        url.URL // its path has no trailing "/"
	credentials *credentials
	userProject string
}

// call is a request to be sent.
type call struct {
	method string
	path   []string // its parts, unescaped; a "/" in a part is escaped
	query  url.Values
	header http.Header
	body   *backends.Part
}

// inXML returns a call of the XML API for an object, or for the bucket if key is "".
func (b *bucket) inXML(method, key string) *call {
	q := &call{method: method, path: []string{b.name}, query: make(url.Values), header: make(http.Header)}
	if key != "" {
		q.path = append(q.path, key)
	}
	return q
}

// inJSON returns a call of the JSON API for a part of the bucket.
func (b *bucket) inJSON(method string, path ...string) *call {
	return &call{
		method: method, path: append([]string{"storage", "v1", "b", b.name}, path...),
		query: make(url.Values), header: make(http.Header),
	}
}

// escape percent-encodes all but the characters that never need it, so that no proxy normalizes a
// path.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// do sends a call and returns the successful response.
func (c *client) do(ctx context.Context, q *call) (*http.Response, error) {
	token, err := c.credentials.token(ctx)
	if err != nil {
		return nil, err
	}
	if token != "" {
		q.header.Set("Authorization", "Bearer "+token)
	}
	if c.userProject != "" {
		q.header.Set("X-Goog-User-Project", c.userProject)
	}
	q.header.Set("User-Agent", "stager")
	res, err := c.http.Send(q.request(ctx, c.base), q.body)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 != 2 {
		return nil, readServerError(res, token)
	}
	return res, nil
}

// request returns the HTTP request of a call.
func (q *call) request(ctx context.Context, base url.URL) *http.Request {
	escaped := base.EscapedPath()
	for _, part := range q.path {
		base.Path += "/" + part
		escaped += "/" + escape(part)
	}
	base.RawPath, base.RawQuery = escaped, q.query.Encode()
	req := &http.Request{Method: q.method, URL: &base, Host: base.Host, Header: q.header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	return req.WithContext(ctx)
}

// answerLimit is the maximum size of a document: a page of a thousand keys of a thousand bytes,
// each escaped, with room for the rest.
const answerLimit = 32 << 20

// document sends a call and returns the body and the header of the response.
func (c *client) document(ctx context.Context, q *call) ([]byte, http.Header, error) {
	res, err := c.do(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close() // it was read
	text, err := io.ReadAll(io.LimitReader(res.Body, answerLimit))
	return text, res.Header, err
}

// json sends a call of the JSON API and parses the response into out.
func (c *client) json(ctx context.Context, q *call, out any) error {
	text, _, err := c.document(ctx, q)
	if err == nil && json.Unmarshal(text, out) != nil {
		err = strange()
	}
	return err
}

// xml sends a call of the XML API and parses the response into out. A success may contain an error.
func (c *client) xml(ctx context.Context, q *call, out any) (http.Header, error) {
	text, header, err := c.document(ctx, q)
	if err != nil {
		return nil, err
	}
	if a := (&serverError{status: http.StatusInternalServerError}); a.parse(text) {
		return nil, a
	}
	if xml.Unmarshal(text, out) != nil {
		return nil, strange()
	}
	return header, nil
}

func strange() error {
	return backends.Errorf(backends.Unknown, "", "", "the server does not respond as Google Cloud Storage does: check the endpoint")
}

// with sets a body.
func (q *call) with(body []byte, contentType string) *call {
	q.body = section(body)
	q.header.Set("Content-Type", contentType)
	return q
}

package oss

import (
	"encoding/base64"
	"encoding/xml"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// transport sits between the SDK and the network. It reports sent bytes, which the Store does not
// see, to the stall detector. It removes the signature from anonymous requests. It converts error
// responses to errors before the SDK reads them.
type transport struct {
	http.RoundTripper
	anonymous bool
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context()) // a RoundTripper must not modify its request
	if t.anonymous {
		r.Header.Del("Authorization")
	}
	switch {
	case r.ContentLength == 0:
		r.Body = http.NoBody // otherwise an empty object would be sent chunked, without a length
	case r.Body != nil:
		r.Body = objectstore.Moving(r.Context(), r.Body)
	}
	res, err := t.RoundTripper.RoundTrip(r)
	if err != nil || res.StatusCode/100 == 2 {
		return res, err
	}
	defer res.Body.Close()
	return nil, readServerError(res)
}

// A serverError is an error response.
type serverError struct {
	status     int
	code       string // "" if there was none
	message    string
	request    string // the store's request ID
	endpoint   string // the right endpoint of the bucket; may be empty
	page       bool   // the body is a web page, so the server does not implement OSS
	retryAfter time.Duration
}

func (a *serverError) Error() string {
	if a.code == "" {
		return "HTTP " + strconv.Itoa(a.status)
	}
	return a.code + ": " + a.message
}

// readServerError parses an error response. A response to HEAD has no body; OSS puts the error into
// a header.
func readServerError(res *http.Response) *serverError {
	a := &serverError{
		status:  res.StatusCode,
		request: res.Header.Get("X-Oss-Request-Id"),
		page:    strings.HasPrefix(res.Header.Get("Content-Type"), "text/html"),
	}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 {
		a.retryAfter = time.Duration(s) * time.Second
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if head := res.Header.Get("X-Oss-Err"); len(text) == 0 && head != "" {
		text, err = base64.StdEncoding.DecodeString(head)
	}
	var reported struct {
		XMLName                 xml.Name `xml:"Error"`
		Code, Message, Endpoint string
	}
	if err == nil && xml.Unmarshal(text, &reported) == nil {
		a.code, a.message, a.endpoint = reported.Code, reported.Message, reported.Endpoint
	}
	return a
}

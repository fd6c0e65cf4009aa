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

// transport stands between the SDK and the network. It tells the watchdog of bytes
// that are sent, which Store does not see; takes the signature of nobody away; and
// makes an error of each answer that says no, before the SDK does.
type transport struct {
	http.RoundTripper
	anonymous bool
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context()) // a RoundTripper leaves its request alone
	if t.anonymous {
		r.Header.Del("Authorization")
	}
	switch {
	case r.ContentLength == 0:
		r.Body = http.NoBody // else an empty object would be sent in chunks, of unknown length
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

// An answer is what a server said in refusing.
type serverError struct {
	status     int
	code       string // "" when it did not say
	message    string
	request    string // the store's own number for the request
	endpoint   string // where it says the bucket is; may be empty
	page       bool   // it is a web page, so whoever answered does not speak OSS
	retryAfter time.Duration
}

func (a *serverError) Error() string {
	if a.code == "" {
		return "HTTP " + strconv.Itoa(a.status)
	}
	return a.code + ": " + a.message
}

// readServerError understands an answer that says no. To HEAD there is no body; OSS puts
// it into a header.
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
	var told struct {
		XMLName                 xml.Name `xml:"Error"`
		Code, Message, Endpoint string
	}
	if err == nil && xml.Unmarshal(text, &told) == nil {
		a.code, a.message, a.endpoint = told.Code, told.Message, told.Endpoint
	}
	return a
}

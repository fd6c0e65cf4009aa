package oss

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
)

func TestClassify(t *testing.T) {
	sent := func(err error) error { return &url.Error{Op: "Get", URL: "http://h/", Err: err} }
	says := func(status int, code string) error {
		return sent(&serverError{status: status, code: code, message: "The words."})
	}
	for _, tt := range []struct {
		err  error
		kind backends.Kind
	}{
		{says(404, "NoSuchKey"), backends.NotExist},
		{says(404, "NoSuchBucket"), backends.NotExist},
		{says(404, ""), backends.NotExist}, // HEAD without a body
		{says(404, "NoSuchUpload"), backends.Invalid},
		{says(500, "NoSuchKey"), backends.Unavailable}, // a failing server knows nothing
		{sent(&serverError{status: 404, page: true}), backends.Unknown},
		{sent(&serverError{status: 502, page: true}), backends.Unavailable},
		{says(403, "AccessDenied"), backends.Permission},
		{sent(&serverError{status: 403, code: "AccessDenied", endpoint: "oss-cn-beijing.aliyuncs.com"}), backends.Invalid},
		{says(403, ""), backends.Permission},
		{says(403, "InvalidAccessKeyId"), backends.Permission},
		{says(403, "SignatureDoesNotMatch"), backends.Permission},
		{says(403, "SecurityTokenExpired"), backends.Permission},
		{says(403, "RequestTimeTooSkewed"), backends.Permission},
		{says(403, "InvalidObjectState"), backends.Unsupported},
		{says(409, "FileAlreadyExists"), backends.Exist},
		{says(409, "FileImmutable"), backends.Unsupported},
		{says(409, "OperationConflict"), backends.Unavailable},
		{says(412, "PreconditionFailed"), backends.Changed},
		{says(412, ""), backends.Changed},
		{says(400, "InvalidArgument"), backends.Invalid},
		{says(400, "InvalidObjectName"), backends.Invalid},
		{says(400, "InvalidDigest"), backends.Unknown},
		{says(400, "RequestTimeout"), backends.Unavailable},
		{says(301, ""), backends.Invalid},
		{says(429, ""), backends.Throttled},
		{says(503, "SlowDown"), backends.Throttled},
		{says(503, "ServiceUnavailable"), backends.Throttled},
		{says(503, ""), backends.Throttled},
		{says(500, "InternalError"), backends.Unavailable},
		{says(501, "NotImplemented"), backends.Unsupported},
		{sent(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), backends.Unavailable},
		{sent(&net.DNSError{Err: "no such host"}), backends.Unavailable},
		{sent(syscall.ECONNRESET), backends.Unavailable},
		{sent(io.EOF), backends.Unavailable},
		{io.ErrUnexpectedEOF, backends.Unavailable},
		{sent(context.Canceled), backends.Canceled},
		{sent(context.DeadlineExceeded), backends.Canceled},
		{sent(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), backends.Invalid},
		{sent(http.ErrSchemeMismatch), backends.Invalid},
		{noCredentials(errors.New("refused")), backends.Permission},
		{noCredentials(&serverError{status: 404}), backends.Permission},
		{noCredentials(&serverError{status: 503}), backends.Unavailable},
		{errors.New("odd"), backends.Unknown},
	} {
		if got := classify(tt.err); got != tt.kind {
			t.Errorf("%v: got %v, want %v", tt.err, got, tt.kind)
		}
	}
}

func TestErrorTexts(t *testing.T) {
	b := &bucket{name: "here", log: slog.New(slog.DiscardHandler), credentials: newCredentials(backends.Options{}, false)}
	for _, tt := range []struct {
		a    serverError
		want string
	}{
		{serverError{status: 404, code: "NoSuchBucket"}, `bucket "here" does not exist`},
		{serverError{status: 404}, "no such object"},
		{serverError{status: 403}, "access denied (HTTP 403)"},
		{serverError{status: 403, code: "AccessDenied", message: "You have no right."}, "You have no right (AccessDenied)"},
		{serverError{status: 403, code: "AccessDenied", endpoint: "oss-cn-beijing.aliyuncs.com"}, "set ?endpoint=oss-cn-beijing.aliyuncs.com"},
		{serverError{status: 400, code: "InvalidArgument", message: "Invalid signing region in Authorization header."}, "correct ?region="},
		{serverError{status: 403, code: "RequestTimeTooSkewed"}, "the clock of this machine"},
		{serverError{status: 403, code: "InvalidObjectState"}, "must be restored"},
		{serverError{status: 502, page: true}, "a web page with HTTP 502"},
		{serverError{status: 500}, "the server returned HTTP 500 Internal Server Error"},
		{serverError{status: 400, code: "Odd", message: strings.Repeat("<p> ", 300)}, "… (Odd)"},
	} {
		err := b.explain("stat", "k", fmt.Errorf("through layers: %w", &tt.a))
		if got := err.Error(); !strings.HasPrefix(got, "stat k: ") || !strings.Contains(got, tt.want) || len(got) > 900 {
			t.Errorf("%+v: got %q, want %q", tt.a, got, tt.want)
		}
	}
}

// The advice for a wrong clock was to set OSS_ACCESS_KEY_ID.
func TestClockSkewIsNotACredentialError(t *testing.T) {
	b := &bucket{name: "here", log: slog.New(slog.DiscardHandler), credentials: newCredentials(backends.Options{}, false)}
	err := b.explain("stat", "k", &serverError{status: 403, code: "RequestTimeTooSkewed"})
	if got := backends.KindOf(err); got != backends.Permission || !errors.Is(err, backends.ErrClock) {
		t.Errorf("got %v of kind %v, want ErrClock of kind permission", err, got)
	}
}

func TestErrorResponsesAreParsedFromBodyOrHeader(t *testing.T) {
	const text = `<?xml version="1.0"?><Error><Code>NoSuchKey</Code><Message>Gone.</Message><Endpoint>e</Endpoint></Error>`
	for _, tt := range []struct {
		name string
		res  http.Response
		want serverError
	}{
		{
			"in the body",
			http.Response{StatusCode: 404, Header: http.Header{"X-Oss-Request-Id": {"7"}, "Retry-After": {"3"}}, Body: io.NopCloser(strings.NewReader(text))},
			serverError{status: 404, code: "NoSuchKey", message: "Gone.", endpoint: "e", request: "7", retryAfter: 3 * time.Second},
		},
		{
			"in a header, as for HEAD",
			http.Response{StatusCode: 404, Header: http.Header{"X-Oss-Err": {base64.StdEncoding.EncodeToString([]byte(text))}}, Body: http.NoBody},
			serverError{status: 404, code: "NoSuchKey", message: "Gone.", endpoint: "e"},
		},
		{
			"of something else",
			http.Response{StatusCode: 503, Header: http.Header{"Content-Type": {"text/html; charset=utf-8"}}, Body: io.NopCloser(strings.NewReader("<html>"))},
			serverError{status: 503, page: true},
		},
		{
			"nowhere",
			http.Response{StatusCode: 403, Header: http.Header{"X-Oss-Err": {"not base64!"}}, Body: http.NoBody},
			serverError{status: 403},
		},
	} {
		if got := readServerError(&tt.res); *got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, *got, tt.want)
		}
	}
}

// A region without an endpoint leads to its public host, which clusters without internet access
// cannot reach. The message then begins with the missing endpoint.
func TestErrorNamesTheMissingEndpoint(t *testing.T) {
	lookup := &url.Error{Op: "Get", URL: "http://h/", Err: &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "h", IsNotFound: true}}}
	const public, missing = "OSS_REGION=cn-hangzhou", "list k: no endpoint is set (?endpoint= or OSS_ENDPOINT, in the environment or the Secret), and the public one of the region cannot be reached: dial tcp: lookup h: no such host"
	for _, tt := range []struct {
		env  string
		err  error
		want string
	}{
		{public, lookup, missing},
		{public, &url.Error{Op: "Get", Err: syscall.ECONNRESET}, "list k: connection reset by peer"},
		{public, &serverError{status: 404, code: "NoSuchBucket"}, `list k: bucket "bucket" does not exist`},
		{"OSS_ENDPOINT=https://oss.example.org", lookup, "list k: dial tcp: lookup h: no such host"},
	} {
		b, err := newBucket(target("", tt.env))
		if err != nil {
			t.Fatal(err)
		}
		if got := b.explain("list", "k", tt.err); got.Error() != tt.want || backends.KindOf(got) != classify(tt.err) {
			t.Errorf("with %s: got %q of kind %s, want %q", tt.env, got, backends.KindOf(got), tt.want)
		}
	}
}

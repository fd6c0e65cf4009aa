package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/smithy-go"

	"github.com/stager-dev/stager/backends"
)

// refuse responds to every request with a status and, unless it is empty, a code in XML.
func refuse(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		if code != "" && r.Method != http.MethodHead {
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>Words of the server.</Message><RequestId>R1</RequestId></Error>", code)
		}
	}
}

func TestClassifyAnswers(t *testing.T) {
	for _, tt := range []struct {
		status int
		code   string
		kind   backends.Kind
		words  string
	}{
		{404, "NoSuchKey", backends.NotExist, "no such object (NoSuchKey)"},
		{404, "NoSuchBucket", backends.NotExist, `bucket "bucket" does not exist`},
		{404, "NoSuchUpload", backends.Invalid, "another client ended this upload (NoSuchUpload)"},
		{403, "AccessDenied", backends.Permission, "Words of the server (AccessDenied)"},
		{403, "", backends.Permission, "access denied (HTTP 403)"},
		{403, "InvalidAccessKeyId", backends.Permission, "the store does not know this access key (InvalidAccessKeyId)"},
		{403, "SignatureDoesNotMatch", backends.Permission, "the secret key does not match"},
		{400, "ExpiredToken", backends.Permission, "the session token has expired (ExpiredToken)"},
		{403, "RequestTimeTooSkewed", backends.Permission, "the clock of this machine"},
		{403, "InvalidObjectState", backends.Unsupported, "archived"},
		{301, "PermanentRedirect", backends.Invalid, "?region="},
		{400, "AuthorizationHeaderMalformed", backends.Invalid, "?region="},
		{400, "InvalidArgument", backends.Invalid, "Words of the server (InvalidArgument)"},
		{400, "BadDigest", backends.Unknown, "(BadDigest)"},
		{400, "RequestTimeout", backends.Unavailable, "(RequestTimeout)"},
		{409, "OperationAborted", backends.Unavailable, "(OperationAborted)"},
		{412, "PreconditionFailed", backends.Changed, "changed"},
		{416, "InvalidRange", backends.Corrupt, "ends before"},
		{429, "", backends.Throttled, "HTTP 429 Too Many Requests"},
		{503, "SlowDown", backends.Throttled, "(SlowDown)"},
		{503, "", backends.Throttled, "HTTP 503 Service Unavailable"},
		{400, "SlowDown", backends.Throttled, "(SlowDown)"},
		{500, "InternalError", backends.Unavailable, "(InternalError)"},
		{500, "NoSuchKey", backends.Unavailable, ""}, // it cannot know
		{502, "", backends.Unavailable, "HTTP 502 Bad Gateway"},
		{504, "", backends.Unavailable, "HTTP 504"},
		{507, "", backends.NoSpace, "HTTP 507"},
		{403, "QuotaExceeded", backends.NoSpace, "(QuotaExceeded)"},
		{501, "NotImplemented", backends.Unsupported, "(NotImplemented)"},
	} {
		b := openFake(t, refuse(tt.status, tt.code))
		_, err := b.OpenRange(t.Context(), backends.Object{Key: "k", Size: 10, Version: "v"}, 5, 1)
		if got := backends.KindOf(err); got != tt.kind || !strings.Contains(fmt.Sprint(err), tt.words) {
			t.Errorf("HTTP %d %s: %v (%v); want %q of kind %v", tt.status, tt.code, err, got, tt.words, tt.kind)
		}
		if text := fmt.Sprint(err); strings.Contains(text, "operation error") || strings.Contains(text, "R1") {
			t.Errorf("HTTP %d %s: the error shows the SDK's layers: %v", tt.status, tt.code, err)
		}
	}
}

func TestClassifyFailures(t *testing.T) {
	for _, tt := range []struct {
		err  error
		kind backends.Kind
	}{
		{context.Canceled, backends.Canceled},
		{context.DeadlineExceeded, backends.Canceled},
		{&smithy.OperationError{Err: &smithy.CanceledError{Err: context.Canceled}}, backends.Canceled},
		{&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}, backends.Unavailable},
		{&net.DNSError{Name: "nowhere", IsNotFound: true}, backends.Unavailable},
		{fmt.Errorf("read: %w", syscall.ECONNRESET), backends.Unavailable},
		{io.ErrUnexpectedEOF, backends.Unavailable},
		{&credentialsError{errors.New("none")}, backends.Permission},
		{&credentialsError{&smithy.OperationError{ServiceID: "STS", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}}, backends.Unavailable},
		{&credentialsError{&smithy.OperationError{ServiceID: "ec2imds", Err: &net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}}}, backends.Permission},
		{errors.New("something else"), backends.Unknown},
		{backends.Errorf(backends.Exist, "", "", "known"), backends.Exist},
	} {
		if got := classify(tt.err); got != tt.kind {
			t.Errorf("classify(%v) = %v, want %v", tt.err, got, tt.kind)
		}
	}
}

func TestServerUnreachable(t *testing.T) {
	s := httptest.NewServer(nil)
	s.Close()
	b := openAt(t, s.URL, "")
	_, err := b.Stat(t.Context(), "k")
	if backends.KindOf(err) != backends.Unavailable || !strings.HasSuffix(fmt.Sprint(err), "connection refused") {
		t.Errorf("got %v (%v), want a refused connection of kind unavailable", err, backends.KindOf(err))
	}
}

func TestRetryAfterIsPassedOn(t *testing.T) {
	b := openFake(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		refuse(503, "SlowDown")(w, r)
	})
	_, err := b.Stat(t.Context(), "k")
	var e *backends.Error
	if !errors.As(err, &e) || e.Kind != backends.Throttled || e.RetryAfter != 7*time.Second {
		t.Errorf("got %+v, want kind throttled, to be tried after 7s", e)
	}
}

func TestServerIsNotS3(t *testing.T) {
	b := openFake(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "<html><body><h1>Not here</h1><br></body></html>")
	})
	for _, err := range b.List(t.Context(), "") {
		if got := backends.KindOf(err); got == backends.NotExist {
			t.Errorf("a page of HTML is taken for an answer: %v (%v)", err, got)
		}
	}
}

// openFake opens a bucket of a server that is a function.
func openFake(t *testing.T, h http.HandlerFunc) *bucket {
	t.Helper()
	return openAt(t, newServer(t, h), "")
}

func openAt(t testing.TB, endpoint, params string) *bucket {
	t.Helper()
	store := storeAt(t, endpoint, params)
	raw, _ := store.Backend()
	return raw.(*bucket)
}

func storeAt(t testing.TB, endpoint, params string) *backends.Store {
	t.Helper()
	store, err := backends.NewRegistry(Scheme()).Open(t.Context(), "s3://bucket/?endpoint="+endpoint+params, backends.Options{
		Log: slog.New(slog.DiscardHandler), RetryFor: time.Minute,
		Getenv: func(name string) string {
			return map[string]string{"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}[name]
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

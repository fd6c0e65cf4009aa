package s3

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance/rotation"
)

// moto responds to HEAD of a missing key with the type of a web page, and push --commit failed with
// "a web page answers, with HTTP 404".
func TestStatOfAMissingKeyWithAPageType(t *testing.T) {
	b := openFake(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if r.Method == http.MethodHead {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprint(w, "<ListBucketResult/>")
	})
	if _, err := b.Stat(t.Context(), "k"); backends.KindOf(err) != backends.NotExist {
		t.Errorf("got %v (%v), want kind not-exist", err, backends.KindOf(err))
	}
}

// A response with a request ID of S3 comes from an S3 server, whatever its type.
func TestRejectionWithAPageTypeAndARequestID(t *testing.T) {
	b := openFake(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("X-Amz-Request-Id", "R1")
		refuse(404, "NoSuchKey")(w, r)
	})
	_, err := b.OpenRange(t.Context(), backends.Object{Key: "k", Size: 10}, 0, -1)
	if got := fmt.Sprint(err); backends.KindOf(err) != backends.NotExist || !strings.Contains(got, "no such object") {
		t.Errorf("got %v (%v), want no such object of kind not-exist", err, backends.KindOf(err))
	}
}

// moto sends every S3 error as text/html and without a request ID. Each was taken for a web page: a
// missing object was not NotExist, and a conditional write that lost was retried until --retry-for
// ended.
func TestRejectionsWithAPageType(t *testing.T) {
	for _, tt := range []struct {
		status int
		code   string
		do     func(*bucket) error
		want   backends.Kind
	}{
		{404, "NoSuchKey", func(b *bucket) error {
			_, err := b.OpenRange(t.Context(), backends.Object{Key: "k", Size: 10}, 0, -1)
			return err
		}, backends.NotExist},
		{412, "PreconditionFailed", func(b *bucket) error {
			_, err := b.OpenRange(t.Context(), backends.Object{Key: "k", Size: 10, Version: "E"}, 2, 3)
			return err
		}, backends.Changed},
		{412, "PreconditionFailed", func(b *bucket) error {
			w, err := b.Create(t.Context(), "k", backends.CreateOptions{Size: 1, IfAbsent: true})
			if err == nil {
				_, err = w.Write([]byte("x"))
			}
			if err == nil {
				_, err = w.Commit(t.Context())
			}
			return err
		}, backends.Changed}, // HEAD decides whether it exists
		{403, "AccessDenied", func(b *bucket) error { return b.Delete(t.Context(), "k") }, backends.Permission},
	} {
		b := openFake(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			refuse(tt.status, tt.code)(w, r)
		})
		if err := tt.do(b); backends.KindOf(err) != tt.want {
			t.Errorf("%s: got %v (%v), want kind %v", tt.code, err, backends.KindOf(err), tt.want)
		}
	}
}

// A web server that is not an S3 server is not trusted about a missing key: the request after HEAD
// returns a page.
func TestStatOfAWebServer(t *testing.T) {
	b := openFake(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "<html><body><h1>Not here</h1><br></body></html>")
	})
	if _, err := b.Stat(t.Context(), "k"); backends.KindOf(err) == backends.NotExist || !strings.Contains(fmt.Sprint(err), "returned a web page") {
		t.Errorf("got %v (%v), want that a web page answers", err, backends.KindOf(err))
	}
}

// http:// with a TLS port failed with "the server answers HTTP 400 Bad Request".
func TestPlainRequestsToATLSPort(t *testing.T) {
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096)) // the client sees if it fails
			_, _ = io.WriteString(conn, "\x15\x03\x01\x00\x02\x02\x16")
			conn.Close()
		}
	}()
	for _, at := range []string{secure.Listener.Addr().String(), listener.Addr().String()} {
		b := openAt(t, "http://"+at, "")
		_, err := b.Stat(t.Context(), "k")
		_, err2 := b.OpenRange(t.Context(), backends.Object{Key: "k", Size: 10}, 0, -1)
		for _, err := range []error{err, err2} {
			if backends.KindOf(err) != backends.Invalid || !strings.Contains(fmt.Sprint(err), "write https://") {
				t.Errorf("got %v (%v), want kind invalid and the advice to write https://", err, backends.KindOf(err))
			}
		}
	}
}

func pemOf(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

// A certificate for another name led to advice about CA files.
func TestCertificateOfAnotherName(t *testing.T) {
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pemOf(secure.Certificate()), 0o600); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(secure.Listener.Addr().String())
	b := openAt(t, "https://localhost:"+port, "&ca-bundle="+ca)
	_, err := b.Stat(t.Context(), "k")
	text := fmt.Sprint(err)
	if !strings.Contains(text, "is for example.com") || !strings.Contains(text, "not for localhost") || strings.Contains(text, "ca-bundle") {
		t.Errorf("got %v, want the names of the certificate and no word of ca-bundle", err)
	}
}

// s3proxy responds with 500 to the completion of an upload with a checksum that it does not know.
// It was retried for two minutes, and no large object could be stored.
func TestCompletionRejectedForItsChecksum(t *testing.T) {
	var with, without atomic.Int32
	b := storeAt(t, newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodHead:
			w.WriteHeader(http.StatusNotFound)
			return
		case r.Method != http.MethodPost || r.URL.Query().Has("uploads"):
			(&vault{refuses: func(int, string, io.Reader) http.HandlerFunc { return nil }}).ServeHTTP(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body) // the client sees if it fails
		if strings.Contains(string(body), "Checksum") {
			with.Add(1)
			refuse(500, "InternalError")(w, r)
			return
		}
		without.Add(1)
		fmt.Fprint(w, `<CompleteMultipartUploadResult><ETag>"whole"</ETag></CompleteMultipartUploadResult>`)
	})), "")
	for range 2 {
		if _, err := b.Put(t.Context(), "k", zeros{}, twoParts, backends.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if with.Load() != 2 || without.Load() != 2 {
		t.Errorf("%d completions with checksums and %d without, want 2 and 2", with.Load(), without.Load())
	}
}

// The response to a completion was truncated five times within 1.6 seconds. The command failed with
// 70 although the upload was complete.
func TestCompletionWithTruncatedResponse(t *testing.T) {
	for _, answer := range []string{"", "<CompleteMultipartUploadRes"} {
		var mark atomic.Value
		var completions atomic.Int32
		store := storeAt(t, newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodHead && completions.Load() == 0:
				w.WriteHeader(http.StatusNotFound)
			case r.Method == http.MethodHead:
				w.Header().Set("X-Amz-Meta-"+markName, mark.Load().(string))
				w.Header().Set("Content-Length", fmt.Sprint(twoParts))
				w.Header().Set("ETag", `"whole"`)
			case r.Method == http.MethodPost && r.URL.Query().Has("uploads"):
				mark.Store(r.Header.Get("X-Amz-Meta-" + markName))
				fmt.Fprint(w, `<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>`)
			case r.Method == http.MethodPost:
				completions.Add(1)
				w.Header().Set("Content-Length", "1000")
				fmt.Fprint(w, answer)
			default:
				_, _ = io.Copy(io.Discard, r.Body) // the client sees if it fails
				w.Header().Set("ETag", `"p"`)
			}
		})), "")
		obj, err := store.Put(t.Context(), "k", zeros{}, twoParts, backends.CreateOptions{})
		if err != nil || obj.Version != "whole" || completions.Load() != 1 {
			t.Errorf("%q: got %+v, %v after %d completions; want version whole after 1", answer, obj, err, completions.Load())
		}
	}
}

// A truncated response is a failure of the server, so it is retried for the configured time.
func TestCompletionWithCutResponseIsRetried(t *testing.T) {
	b := openFake(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && !r.URL.Query().Has("uploads") {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, "  ")
			return
		}
		(&vault{refuses: func(int, string, io.Reader) http.HandlerFunc { return nil }}).ServeHTTP(w, r)
	})
	u := b.newUpload("k", backends.CreateOptions{})
	if err := u.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Publish(t.Context(), nil, 0); backends.KindOf(err) != backends.Unavailable {
		t.Errorf("got %v (%v), want kind unavailable", err, backends.KindOf(err))
	}
}

// The token in a mounted Secret had been renewed, yet a drain gave up after a second: the cached
// token was still in use, and the refusal was final.
func TestExpiredTokensAreReadAgain(t *testing.T) {
	secrets := t.TempDir()
	write := func(token string) {
		for name, text := range map[string]string{"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": token} {
			if err := os.WriteFile(filepath.Join(secrets, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("old")
	var mu sync.Mutex
	valid := "old"
	endpoint := newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("X-Amz-Security-Token") != valid {
			refuse(400, "ExpiredToken")(w, r)
			return
		}
		switch {
		case r.Method == http.MethodGet && r.URL.Query().Has("list-type"):
			fmt.Fprint(w, "<ListBucketResult/>")
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		default:
			w.Header().Set("ETag", `"e"`)
		}
	}))
	open := func(opts backends.Options) *backends.Store {
		opts.RetryFor = time.Minute
		store, err := backends.NewRegistry(Scheme()).Open(t.Context(), "s3://bucket/?endpoint="+endpoint, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		return store
	}
	store := open(backends.Options{Secrets: secrets})
	for token, try := range map[string]func() error{
		"2": func() error {
			_, err := store.PutBytes(t.Context(), "k", []byte("x"), backends.CreateOptions{})
			return err
		},
		"3": func() error { return store.Delete(t.Context(), "k") },
		"4": func() error { _, err := store.Stat(t.Context(), "k"); return err },
	} {
		if err := try(); err != nil {
			t.Fatalf("before token %s: %v", token, err)
		}
		mu.Lock()
		valid = token
		mu.Unlock()
		write(token)
		if err := try(); err != nil {
			t.Errorf("after token %s came: %v, want that it is read and used", token, err)
		}
	}

	// The environment does not change, so the refusal is final.
	env := map[string]string{"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "old"}
	err := open(backends.Options{Getenv: func(name string) string { return env[name] }}).Delete(t.Context(), "k")
	var e *backends.Error
	if !errors.As(err, &e) || e.Kind != backends.Permission || e.Again {
		t.Errorf("with a token of the environment: %+v, want kind permission, for good", err)
	}
}

// The key in a mounted Secret was rotated and the old one revoked at once. The cached key was used for five
// minutes more, each refusal was final, and a drain in that time lost the last checkpoint.
func TestRotatedCredentialsAreUsed(t *testing.T) {
	rotation.Run(t, rotation.Case{
		Scheme: Scheme(), Writes: true,
		URL: func(server string) string { return "s3://bucket/?endpoint=" + server },
		Files: func(g string) map[string]string {
			return map[string]string{"AWS_ACCESS_KEY_ID": g, "AWS_SECRET_ACCESS_KEY": "secret"}
		},
		Has: func(r *http.Request, g string) bool {
			return strings.Contains(r.Header.Get("Authorization"), "Credential="+g+"/")
		},
		Refuse: func(w http.ResponseWriter, r *http.Request) {
			code := "InvalidAccessKeyId"
			if r.Method == http.MethodDelete {
				code = "AccessDenied"
			}
			refuse(403, code)(w, r) // to HEAD without a body, and so without a code
		},
		Lists:   func(r *http.Request) bool { return r.URL.Query().Has("list-type") },
		Listing: `<?xml version="1.0"?><ListBucketResult><Name>bucket</Name><KeyCount>1</KeyCount><IsTruncated>false</IsTruncated><Contents><Key>key</Key><Size>1</Size><ETag>&quot;e&quot;</ETag><LastModified>2026-11-24T00:00:00.000Z</LastModified></Contents></ListBucketResult>`,
		Serve: func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			w.Header().Set("ETag", `"e"`)
		},
	})
}

// The advice for a wrong clock was to set AWS_ACCESS_KEY_ID. The command line knows it by ErrClock.
func TestSkewedClockIsNamed(t *testing.T) {
	store := storeAt(t, newServer(t, refuse(403, "RequestTimeTooSkewed")), "")
	err := store.Delete(t.Context(), "k")
	if backends.KindOf(err) != backends.Permission || !errors.Is(err, backends.ErrClock) {
		t.Errorf("got %v (%v), want ErrClock of kind permission", err, backends.KindOf(err))
	}
}

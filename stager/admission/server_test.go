package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stager-dev/stager/stager/admission/kube"
)

// fixed serves one certificate from the first Sync on.
type fixed struct {
	cert  *tls.Certificate
	there atomic.Bool
}

func (f *fixed) Sync(context.Context) error { f.there.Store(true); return nil }
func (f *fixed) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return f.cert, nil
}

func (f *fixed) Expires() time.Time {
	if !f.there.Load() {
		return time.Time{}
	}
	return time.Unix(1<<32, 0)
}

func newServer() *Server {
	return &Server{Mutator: new(Mutator), Certificates: new(fixed), Log: slog.New(slog.DiscardHandler)}
}

func post(h http.Handler, kind string, body []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/mutate", bytes.NewReader(body))
	r.Header.Set("Content-Type", kind)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestRequests(t *testing.T) {
	s := newServer()
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg, s.Certificates.Expires)
	h := s.handler(m)
	good := reviewOf(t, podWith(asking), nil)
	large := reviewOf(t, podWith(asking+`,"x":"`+strings.Repeat("x", MaxBody)+`"`), nil)
	for _, c := range []struct {
		name, kind string
		body       []byte
		code       int
		says       string
	}{
		{"good", "application/json; charset=utf-8", good, 200, `"JSONPatch"`},
		{"form", "text/plain", good, 415, "application/json"},
		{"large", "application/json", large, 413, "larger than 3 MiB"},
		{"empty", "application/json", nil, 400, "not an AdmissionReview"},
	} {
		if w := post(h, c.kind, c.body); w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s: %d %s, want %d and %q", c.name, w.Code, w.Body, c.code, c.says)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/mutate", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET = %d, want 405", w.Code)
	}
	w = httptest.NewRecorder()
	s.probes(t.Context(), reg).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{
		`stager_webhook_requests_total{outcome="injected"} 1`, `stager_webhook_requests_total{outcome="malformed"} 3`,
		`stager_webhook_requests_total{outcome="refused"} 0`, `stager_webhook_seconds_count 4`, `stager_webhook_certificate_expires_seconds 0`,
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("metrics have no %s:\n%s", want, w.Body)
		}
	}
}

func TestReadiness(t *testing.T) {
	s := newServer()
	ctx, end := context.WithCancel(t.Context())
	h := s.probes(ctx, prometheus.NewRegistry())
	ready := func(want int) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if w.Code != want {
			t.Errorf("/readyz = %d %s, want %d", w.Code, w.Body, want)
		}
	}
	ready(503) // no certificate
	_ = s.Certificates.Sync(ctx)
	ready(200)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"items":[{"metadata":{"namespace":"team","name":"p"},"data":{"plan.yaml":"text"}},{"metadata":{"namespace":"team","name":"q"}}]}`)
	}))
	defer api.Close()
	s.Plans = &Plans{API: &kube.Client{URL: api.URL, HTTP: api.Client(), Token: func() (string, error) { return "t", nil }}}
	ready(503) // plans unknown
	if err := s.Plans.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	ready(200)
	if text, ok := s.Plans.Find("team", "p"); !ok || string(text) != "text" {
		t.Errorf("Find = %q %v, want text", text, ok)
	}
	if _, ok := s.Plans.Find("other", "p"); ok {
		t.Error("a plan of another namespace was found")
	}
	if _, ok := s.Plans.Find("team", "q"); ok {
		t.Error("a ConfigMap without plan.yaml was taken for a plan")
	}
	end()
	ready(503)
}

// A failure of the background work is counted each time, and logged once until it has ended.
func TestSyncFailuresAreCountedAndLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var said bytes.Buffer
		s.Log = slog.New(slog.NewTextHandler(&said, nil))
		reg := prometheus.NewRegistry()
		m := NewMetrics(reg, s.Certificates.Expires)
		ctx, end := context.WithCancel(t.Context())
		defer end()
		tries := 0
		s.keep(ctx, m, whatCertificate, func(ctx context.Context) error {
			switch tries++; tries {
			case 1, 2, 3:
				return errors.New("forbidden")
			case 5:
				end()
			}
			return s.Certificates.Sync(ctx)
		}, certificateEvery)
		w := httptest.NewRecorder()
		s.probes(ctx, reg).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		for _, want := range []string{
			`stager_webhook_sync_failures_total{what="certificate"} 3`, `stager_webhook_sync_failures_total{what="plans"} 0`,
			"stager_webhook_certificate_expires_seconds 4.294967296e+09",
		} {
			if !strings.Contains(w.Body.String(), want+"\n") {
				t.Errorf("metrics have no %s:\n%s", want, w.Body)
			}
		}
		for _, words := range []string{"cannot refresh the certificate; trying again", "the certificate can be refreshed again"} {
			if got := strings.Count(said.String(), words); got != 1 {
				t.Errorf("the log has %q %d times, want once:\n%s", words, got, &said)
			}
		}
	})
}

// A request in flight at shutdown gets its response, and Run returns.
func TestServerShutdownWaitsForResponses(t *testing.T) {
	some := httptest.NewTLSServer(nil) // for its certificate
	defer some.Close()
	s := newServer()
	s.Certificates = &fixed{cert: &some.TLS.Certificates[0]}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	reviews, probes := listener(t), listener(t)
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, reviews, probes) }()

	pool := x509.NewCertPool()
	pool.AddCert(some.Certificate())
	conn, err := tls.Dial("tcp", reviews.Addr().String(), &tls.Config{RootCAs: pool, ServerName: "example.com"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := reviewOf(t, podWith(asking), nil)
	r, _ := http.NewRequest(http.MethodPost, "https://example.com/mutate", nil)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Expect", "100-continue")
	r.ContentLength, r.Body = int64(len(body)), io.NopCloser(bytes.NewReader(body))
	sent, err := parts(r)
	if err != nil {
		t.Fatal(err)
	}
	head := bytes.Index(sent, []byte("\r\n\r\n")) + 4
	answer := make([]byte, 4096)
	if _, err := conn.Write(sent[:head]); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(answer); err != nil || !strings.Contains(string(answer[:n]), "100 Continue") {
		t.Fatalf("%s %v, want 100 Continue: the handler reads", answer[:n], err)
	}
	end()
	if _, err := conn.Write(sent[head:]); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(answer); err != nil || !strings.HasPrefix(string(answer[:n]), "HTTP/1.1 200") {
		t.Errorf("%s %v, want 200", answer[:n], err)
	}
	if err := <-done; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	if _, err := net.Dial("tcp", reviews.Addr().String()); err == nil {
		t.Error("the port is still open")
	}
}

func parts(r *http.Request) ([]byte, error) {
	var b bytes.Buffer
	err := r.Write(&b)
	return b.Bytes(), err
}

func listener(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A failure of one port also shuts down the other.
func TestPortFailureStopsServer(t *testing.T) {
	s := newServer()
	s.Linger = time.Hour
	reviews, probes := listener(t), listener(t)
	probes.Close()
	if err := s.Run(t.Context(), reviews, probes); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Run = %v, want that the port is closed", err)
	}
}

func BenchmarkHandler(b *testing.B) {
	s := newServer()
	h := s.handler(NewMetrics(prometheus.NewRegistry(), s.Certificates.Expires))
	body := reviewOf(b, large(), nil)
	b.ReportAllocs()
	for b.Loop() {
		if w := post(h, "application/json", body); w.Code != http.StatusOK {
			b.Fatal(w.Code, w.Body)
		}
	}
}

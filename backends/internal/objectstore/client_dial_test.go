package objectstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/backends"
)

func TestSchemes(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "yes") }) //nolint:errcheck // its reader complains
	plain, secure := httptest.NewServer(handler), httptest.NewUnstartedServer(handler)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // it complains about what is tested
	secure.StartTLS()
	defer plain.Close()
	defer secure.Close()
	trusted := secure.Client().Transport.(*http.Transport).TLSClientConfig
	for _, tt := range []struct {
		name, base string
		tls        *tls.Config
		status     int
		check      func(error) bool
	}{
		{"in the clear", plain.URL, nil, 200, func(err error) bool { return err == nil }},
		{"secure", secure.URL, trusted, 200, func(err error) bool { return err == nil }},
		{"secure, by a name", strings.Replace(secure.URL, "127.0.0.1", "example.com", 1), trusted, 200, func(err error) bool { return err == nil }},
		{"secure, by another's name", strings.Replace(secure.URL, "127.0.0.1", "example.org", 1), trusted, 0, func(err error) bool { return says(Connection(err), "not for example.org") }},
		{"of nobody's authority", secure.URL, nil, 0, func(err error) bool { return says(Connection(err), "not trusted") }},
		{"secure, and the server is not", strings.Replace(plain.URL, "http", "https", 1), nil, 0, func(err error) bool { return errors.Is(err, http.ErrSchemeMismatch) }},
		{"in the clear, and the server is not", strings.Replace(secure.URL, "https", "http", 1), nil, 400, func(err error) bool { return err == nil }},
	} {
		transport, err := NewTransport("")
		if err != nil {
			t.Fatal(err)
		}
		transport.TLSClientConfig = tt.tls
		base, _ := url.Parse(tt.base)
		transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr != base.Host {
				t.Errorf("%s: it dials %s, want %s", tt.name, addr, base.Host)
			}
			_, port, _ := net.SplitHostPort(addr)
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
		}
		if status, _, err := get(t.Context(), newClient(t, tt.base, transport), "GET", tt.base+"/key"); status != tt.status || !tt.check(err) {
			t.Errorf("%s: it is %d, %v; want %d", tt.name, status, err, tt.status)
		}
	}
}

// With hundreds of connections to a store, full handshakes take as much CPU time as a gigabyte.
func TestLaterConnectionsResumeTheSession(t *testing.T) {
	resumed := make(chan bool, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { resumed <- r.TLS.DidResume }))
	defer server.Close()
	transport, err := NewTransport("")
	if err != nil {
		t.Fatal(err)
	}
	transport.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig
	g := newClient(t, server.URL, transport)
	for i, want := range []bool{false, true, true} {
		if status, _, err := get(t.Context(), g, "GET", server.URL+"/key"); status != http.StatusOK || err != nil {
			t.Fatalf("GET: %d, %v", status, err)
		}
		if got := <-resumed; got != want {
			t.Errorf("connection %d resumed a session: %v, want %v", i, got, want)
		}
		g.CloseIdleConnections()
	}
}

func TestHandshakeTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := scripted(t, pairOfPipes, func(p *peer) { drain(p) })
		g = newClient(t, "https://store.example", g.transport)
		began := time.Now()
		_, _, err := get(t.Context(), g, "GET", uri)
		if got, want := time.Since(began), g.transport.TLSHandshakeTimeout; !errors.Is(err, context.DeadlineExceeded) || NoResponse(err) != backends.Unavailable || got != want {
			t.Errorf("after %v it is %v, of kind %v; want %v, kind %v", got, err, NoResponse(err), want, backends.Unavailable)
		}
		<-s.peers[0].gone
	})
}

func TestPorts(t *testing.T) {
	for base, want := range map[string]string{
		"http://h": "h:80", "https://h": "h:443", "http://h:443": "h:443", "https://h:80": "h:80", "https://[::1]": "[::1]:443",
	} {
		if got := newClient(t, base, new(http.Transport)).address; got != want {
			t.Errorf("%s is at %s, want %s", base, got, want)
		}
	}
}

func TestProxy(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "the proxy, of %s", r.URL)
	}))
	defer proxy.Close()
	at, _ := url.Parse(proxy.URL)
	transport, err := NewTransport("")
	if err != nil {
		t.Fatal(err)
	}
	transport.Proxy = http.ProxyURL(at)
	g := newClient(t, "http://store.example", transport)
	if _, body, err := get(t.Context(), g, "GET", uri); body != "the proxy, of "+uri || err != nil {
		t.Errorf("it is %q, %v; want %q", body, err, "the proxy, of "+uri)
	}
	transport.Proxy = func(*http.Request) (*url.URL, error) { return nil, errors.New("no URL") }
	if g, err := NewClient(&url.URL{Scheme: "http", Host: "store.example"}, transport); g != nil || backends.KindOf(err) != backends.Invalid {
		t.Errorf("it is %v, %v; want an error of kind %v", g, err, backends.Invalid)
	}
}

// Bodies are sent, through a proxy too, over an existing connection.
func TestBodiesAreSent(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("From", r.RemoteAddr)
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s of %d: %s, %v", r.Method, r.ContentLength, body, err)
	}))
	defer srv.Close()
	at, _ := url.Parse(srv.URL)
	for _, proxy := range []func(*http.Request) (*url.URL, error){nil, http.ProxyURL(at)} {
		transport, err := NewTransport("")
		if err != nil {
			t.Fatal(err)
		}
		transport.Proxy = proxy
		g := newClient(t, srv.URL, transport)
		connections := make(map[string]bool)
		for _, tt := range []struct{ method, body, want string }{
			{"PUT", "bytes", "PUT of 5: bytes, <nil>"},
			{"PUT", "", "PUT of 0: , <nil>"},
			{"GET", "", "GET of 0: , <nil>"},
			{"POST", "more", "POST of 4: more, <nil>"},
		} {
			res, err := g.Send(request(t.Context(), tt.method, srv.URL), section([]byte(tt.body)))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(res.Body); string(got) != tt.want || err != nil {
				t.Errorf("the server had %q, %v; want %q", got, err, tt.want)
			}
			res.Body.Close()
			connections[res.Header.Get("From")] = true
		}
		if got := len(connections); got != 1 {
			t.Errorf("%d connections, want 1", got)
		}
	}
}

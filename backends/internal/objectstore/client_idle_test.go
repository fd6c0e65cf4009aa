package objectstore

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// A server restart leaves as many dead connections as there were concurrent requests. The next
// request must get past all of them.
func TestServerStartsAgain(t *testing.T) {
	const requests = 16
	for _, pair := range []func() (client, server net.Conn){pairOfPipes, pairOfSockets} {
		down := make(chan struct{})
		g, s := scripted(t, pair, func(p *peer) {
			if p.asked() && p.say(second) {
				<-down
			}
		})
		var bodies []io.ReadCloser
		for range requests {
			res, err := g.Send(request(t.Context(), "GET", uri), nil)
			if err != nil {
				t.Fatal(err)
			}
			bodies = append(bodies, res.Body)
		}
		for _, body := range bodies {
			drain(body)
		}
		if got := len(g.idle); got != requests {
			t.Fatalf("%d connections are idle, want %d", got, requests)
		}
		close(down)
		for _, p := range s.peers {
			<-p.gone
		}
		_, body, err := get(t.Context(), g, "GET", uri)
		if got, want := s.dials(), requests+1; body != "second" || err != nil || got != want || len(g.idle) != 1 {
			t.Errorf("it is %q, %v, over %d connections, %d idle; want %q, over %d, 1 idle", body, err, got, len(g.idle), "second", want)
		}
	}
}

// Bytes that arrived on an idle connection were once taken for the response to the next request,
// which then had the bytes of another object.
func TestUnsolicitedResponses(t *testing.T) {
	config, roots := certificate(t)
	for _, scheme := range []string{"http", "https"} {
		for _, unasked := range []string{second, waited, "x"} {
			tell, said := make(chan struct{}), make(chan struct{})
			g, s := scripted(t, pairOfSockets, func(p *peer) {
				p = secured(p, scheme, config)
				if p.asked() && p.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst") {
					<-tell
					p.say(unasked)
					close(said)
					p.asked()
				}
			}, func(p *peer) {
				forever("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthird")(secured(p, scheme, config))
			})
			g.transport.TLSClientConfig = &tls.Config{RootCAs: roots}
			g = newClient(t, scheme+"://example.com", g.transport)
			get(t.Context(), g, "GET", uri) //nolint:errcheck // below it shows
			if len(g.idle) != 1 || !g.idle[0].unused() {
				t.Errorf("%s: %d connections are idle, want 1 that is silent", scheme, len(g.idle))
			}
			close(tell)
			<-said
			if _, body, err := get(t.Context(), g, "GET", uri); body != "third" || err != nil || s.dials() != 2 {
				t.Errorf("%s: after %.20q it is %q, %v over %d connections; want %q over 2", scheme, unasked, body, err, s.dials(), "third")
			}
		}
	}
}

// Over TLS, an unsolicited response may have arrived together with the previous one, where checking
// the socket does not find it.
func TestUnsolicitedResponseInTheSameWrite(t *testing.T) {
	config, roots := certificate(t)
	g, s := scripted(t, pairOfSockets, func(p *peer) {
		held := &holding{Conn: p.Conn}
		p = secured(&peer{Conn: held}, "https", config)
		if p.asked() {
			held.hold = true
			p.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst")
			p.say(second)
			p.Conn.(*tls.Conn).NetConn().(*holding).flush()
			p.asked()
		}
	}, func(p *peer) {
		forever("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthird")(secured(p, "https", config))
	})
	g.transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	g = newClient(t, "https://example.com", g.transport)
	for _, want := range []string{"first", "third"} {
		if _, body, err := get(t.Context(), g, "GET", uri); body != want || err != nil {
			t.Errorf("it is %q, %v, want %q", body, err, want)
		}
	}
	if got := s.dials(); got != 2 {
		t.Errorf("%d connections, want 2", got)
	}
}

func TestIdleConnectionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := scripted(t, pairOfPipes, forever(second))
		one, err := g.Send(request(t.Context(), "GET", uri), nil)
		if err != nil {
			t.Fatal(err)
		}
		get(t.Context(), g, "GET", uri) //nolint:errcheck // over the second connection
		read := func() { drain(one.Body) }
		open := func() (n int) {
			synctest.Wait()
			for _, p := range s.peers {
				select {
				case <-p.gone:
				default:
					n++
				}
			}
			return n
		}
		limit := g.transport.IdleConnTimeout
		for _, tt := range []struct {
			pass time.Duration
			do   func()
			want int // connections
		}{
			{0, nil, 2},
			{limit - 1, read, 2},
			{1, nil, 1}, // the second was idle all the time
			{limit - 2, nil, 1},
			{0, func() { get(t.Context(), g, "GET", uri) }, 1}, //nolint:errcheck // over the first
			{limit - 1, nil, 1},
			{1, nil, 0},
			{limit, func() { get(t.Context(), g, "GET", uri) }, 1}, //nolint:errcheck // over a third
			{0, g.CloseIdleConnections, 0},
			{0, func() { get(t.Context(), g, "GET", uri) }, 1}, //nolint:errcheck // over a fourth
			{limit, nil, 0},
		} {
			time.Sleep(tt.pass)
			if tt.do != nil {
				synctest.Wait()
				tt.do()
			}
			if got := open(); got != tt.want {
				t.Fatalf("after %v more, %d connections are open, want %d", tt.pass, got, tt.want)
			}
		}
		if got := s.dials(); got != 4 {
			t.Errorf("%d connections were made, want 4", got)
		}
	})
}

// A connection in use is not idle.
func TestCloseIdleConnectionsLeavesOthers(t *testing.T) {
	g, s := scripted(t, pairOfSockets, forever(second))
	res, err := g.Send(request(t.Context(), "GET", uri), nil)
	if err != nil {
		t.Fatal(err)
	}
	g.CloseIdleConnections()
	if got, err := io.ReadAll(res.Body); string(got) != "second" || err != nil {
		t.Errorf("it is %q, %v; want %q", got, err, "second")
	}
	if _, body, err := get(t.Context(), g, "GET", uri); body != "second" || err != nil || s.dials() != 1 {
		t.Errorf("then it is %q, %v, over %d connections; want %q over 1", body, err, s.dials(), "second")
	}
}

// holding combines several writes into one.
type holding struct {
	net.Conn
	hold bool
	held []byte
}

func (h *holding) Write(p []byte) (int, error) {
	if !h.hold {
		return h.Conn.Write(p)
	}
	h.held = append(h.held, p...)
	return len(p), nil
}

func (h *holding) flush() {
	h.hold = false
	h.Write(h.held) //nolint:errcheck // its reader complains
}

// certificate returns a certificate for example.com and its CA pool.
func certificate(t *testing.T) (*tls.Config, *x509.CertPool) {
	t.Helper()
	srv := httptest.NewUnstartedServer(nil)
	srv.StartTLS()
	defer srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	return &tls.Config{Certificates: srv.TLS.Certificates}, roots
}

// secured wraps p in TLS if the scheme is https.
func secured(p *peer, scheme string, config *tls.Config) *peer {
	if scheme != "https" {
		return p
	}
	conn := tls.Server(p.Conn, config)
	return &peer{Conn: conn, in: bufio.NewReader(conn), gone: p.gone}
}

package objectstore

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const (
	second = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond"
	waited = "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)

// TestResponses sends two requests. The first response decides which connection the second request
// uses.
func TestResponses(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 1<<12)
	for _, tt := range []struct {
		name, method, answer string
		status               int
		body, err            string // err is part of the error text
		dials                int    // for both requests
	}{
		{"a length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 200, "abc", "", 1},
		{"a long one", "GET", "HTTP/1.1 206 Partial Content\r\nContent-Length: 65536\r\n\r\n" + long, 206, long, "", 1},
		{"nothing", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, "", "", 1},
		{"a refusal", "GET", "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", 404, "no", "", 1},
		{"no content", "GET", "HTTP/1.1 204 No Content\r\n\r\n", 204, "", "", 1},
		{"not modified, with the length there would be", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, "", "", 1},
		{"a HEAD", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", 200, "", "", 1},
		{"a HEAD in chunks", "HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200, "", "", 1},
		{"a HEAD with a body all the same", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 200, "", "", 2},
		{"the method that none is", "", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 200, "abc", "", 1},
		{"chunks", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", 200, "abc", "", 1},
		{"a trailer", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n", 200, "abc", "", 1},
		{"a trailer without end", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: " + long, 200, "abc", "long trailer", 2},
		{"a last answer", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc", 200, "abc", "", 2},
		{"a last answer of nothing", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 200, "", "", 2},
		{"HTTP/1.0", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", 200, "abc", "", 2},
		{"HTTP/1.0 that goes on", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nabc", 200, "abc", "", 1},
		{"no length", "GET", "HTTP/1.1 200 OK\r\n\r\nabc", 200, "abc", "", 2},
		{"words before the answer", "GET", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 200, "abc", "", 1},
		{"a new connection that waited too long", "GET", waited, 408, "", "", 2},
		{"two answers", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc" + second, 200, "abc", "", 2},
		{"two answers, the first of nothing", "GET", "HTTP/1.1 204 No Content\r\n\r\n" + second, 204, "", "", 2},
		{"two answers, the first in chunks", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + second, 200, "", "", 2},

		{"less than its length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", 200, "abc", "unexpected EOF", 2},
		{"chunks without a last one", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", 200, "abc", "unexpected EOF", 2},
		{"chunks of no size", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 200, "", "invalid byte in chunk length", 2},
		{"two lengths", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 0, "", "Content-Length", 2},
		{"a length below none", "GET", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", 0, "", "Content-Length", 2},
		{"half a head", "GET", "HTTP/1.1 200 OK\r\nContent-Le", 0, "", "unexpected EOF", 2}, // and not that the response is malformed
		{"half a status", "GET", "HTTP/1.1 20", 0, "", "unexpected EOF", 2},
		{"words, and no answer", "GET", "HTTP/1.1 100 Continue\r\n\r\n", 0, "", "unexpected EOF", 2},
		{"silence", "GET", "", 0, "", "unexpected EOF", 2},
		{"another protocol", "GET", "SSH-2.0-OpenSSH_9.9\r\n", 0, "", "malformed HTTP", 2},
		{"a change of protocol", "GET", "HTTP/1.1 101 Switching Protocols\r\n\r\n", 0, "", "unrequested protocol", 2},
		{"a status below all", "GET", "HTTP/1.1 099 What\r\nContent-Length: 38\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0, "", `"099 What"`, 2},
		{"a head without end", "GET", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Long: "+long[:8<<10]+"\r\n", 129), 0, "", "exceeds 1048576 bytes", 2},
		{"a line without end", "GET", strings.Repeat(long, 17), 0, "", "exceeds 1048576 bytes", 2},
		{"words without end", "GET", strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 1<<16), 0, "", "exceeds 1048576 bytes", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := forever(second)
				if tt.dials > 1 {
					first = answers()
				}
				g, s := scripted(t, pairOfPipes, func(p *peer) {
					if p.asked() && p.say(tt.answer) {
						first(p)
					}
				}, forever(second))
				status, body, err := get(t.Context(), g, tt.method, uri)
				if status != tt.status || body != tt.body || !says(err, tt.err) {
					t.Errorf("it is %d, %.40q, %v; want %d, %.40q, %q", status, body, err, tt.status, tt.body, tt.err)
				}
				if _, body, err := get(t.Context(), g, "GET", uri); body != "second" || err != nil || s.dials() != tt.dials {
					t.Errorf("then it is %q, %v, over %d connections; want %q over %d", body, err, s.dials(), "second", tt.dials)
				}
				g.CloseIdleConnections()
			})
		})
	}
}

// says reports whether err contains text, or is nil if text is empty.
func says(err error, text string) bool {
	if text == "" {
		return err == nil
	}
	return err != nil && strings.Contains(err.Error(), text)
}

// TestKeptConnections covers reused connections that the server has given up, which shows in place
// of the second response.
func TestKeptConnections(t *testing.T) {
	first := "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst"
	for _, tt := range []struct {
		name, method string // of the second request
		script       func(*peer)
		body, err    string
		dials        int
	}{
		{"closed when it is asked", "GET", answers(first, ""), "second", "", 2},
		{"closed before", "GET", answers(first), "second", "", 2},
		{"waited too long", "GET", answers(first, waited), "second", "", 2},
		{"half an answer", "GET", answers(first, "HTTP/1.1 200 OK\r\nConte"), "", "unexpected EOF", 1},
		{"half a body", "GET", answers(first, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), "half", "unexpected EOF", 1},
		{"no HTTP", "GET", answers(first, "550 what?\r\n"), "", "malformed HTTP", 1},                   // another would say the same
		{"closed when it was to change something", "PUT", answers(first, ""), "", "unexpected EOF", 1}, // which it may have done
		{"waited too long for that", "PUT", answers(first, waited), "second", "", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, s := scripted(t, pairOfPipes, tt.script, forever(second))
				if _, body, err := get(t.Context(), g, "GET", uri); body != "first" || err != nil {
					t.Errorf("it is %q, %v; want %q", body, err, "first")
				}
				_, body, err := get(t.Context(), g, tt.method, uri)
				if body != tt.body || !says(err, tt.err) || s.dials() != tt.dials {
					t.Errorf("then it is %q, %v, over %d connections; want %q, %q, over %d", body, err, s.dials(), tt.body, tt.err, tt.dials)
				}
				g.CloseIdleConnections()
			})
		})
	}
}

// TestRequestsThatCannotBeSent covers request smuggling and header injection. Nothing is sent, and
// the connection stays usable.
func TestRequestsThatCannotBeSent(t *testing.T) {
	evil := "x\r\nX-Evil: 1"
	for _, tt := range []struct {
		name string
		edit func(*http.Request)
	}{
		{"method", func(r *http.Request) { r.Method = "GET / HTTP/1.1\r\nX-Evil: 1\r\n\r\nGET" }},
		{"host", func(r *http.Request) { r.Host = evil }},
		{"query", func(r *http.Request) { r.URL.RawQuery = evil }},
		{"query with a blank", func(r *http.Request) { r.URL.RawQuery = "a b" }},
		{"query with a tab", func(r *http.Request) { r.URL.RawQuery = "a\tb" }},
		{"opaque path", func(r *http.Request) { r.URL.Opaque = "/" + evil }},
		{"header's name", func(r *http.Request) { r.Header = http.Header{evil: {"1"}} }},
		{"header's value", func(r *http.Request) { r.Header = http.Header{"X-Good": {"1", evil}} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, s := scripted(t, pairOfPipes, forever(second))
				for range 2 {
					req := request(t.Context(), "GET", uri)
					tt.edit(req)
					if _, err := g.Send(req, nil); !says(err, "valid") {
						t.Errorf("it is %v, want an invalid request or header", err)
					}
					if _, body, err := get(t.Context(), g, "GET", uri); body != "second" || err != nil || s.dials() != 1 {
						t.Errorf("then it is %q, %v, over %d connections; want %q over 1", body, err, s.dials(), "second")
					}
				}
				g.CloseIdleConnections()
			})
		})
	}
}

// A path of all bytes arrives escaped, with exactly the given headers.
func TestRequestsOnTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got *http.Request
		g, _ := scripted(t, pairOfPipes, func(p *peer) {
			got, _ = http.ReadRequest(p.in)
			p.say(second)
		})
		req := request(t.Context(), "GET", "http://store.example:8080/a?list=1")
		req.URL.Path, req.Header = "/a b\r\n\t%?", http.Header{"Range": {"bytes=0-1"}}
		if _, err := g.Send(req, nil); err != nil {
			t.Fatal(err)
		}
		if want := "/a%20b%0D%0A%09%25%3F?list=1"; got.RequestURI != want || got.Host != "store.example:8080" || len(got.Header) != 1 || got.Header.Get("Range") != "bytes=0-1" {
			t.Errorf("the server reads %q of %q, %v; want %q", got.RequestURI, got.Host, got.Header, want)
		}
		g.CloseIdleConnections()
	})
}

// TestCanceled ends the context at each point of a request's life.
func TestCanceled(t *testing.T) {
	half := "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"
	for _, tt := range []struct {
		name   string
		script func(*peer)
		kept   bool // over a reused connection
	}{
		{"before the request is taken", func(*peer) {}, false},
		{"before the answer", func(p *peer) { p.asked(); p.asked() }, false},
		{"before a second answer", func(p *peer) { answers(second)(p); p.asked(); p.asked() }, true},
		{"in the head", func(p *peer) { p.asked(); p.say(half[:20]); p.asked() }, false},
		{"in the body", func(p *peer) { p.asked(); p.say(half); p.asked() }, false},
	} {
		for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
			t.Run(fmt.Sprintf("%s, %v", tt.name, end), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g, s := scripted(t, pairOfPipes, func(p *peer) {
						tt.script(p)
						drain(p)
					})
					if tt.kept {
						if _, body, err := get(t.Context(), g, "GET", uri); body != "second" || err != nil {
							t.Errorf("first it is %q, %v; want %q", body, err, "second")
						}
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if end == context.Canceled {
						time.AfterFunc(time.Millisecond, cancel)
					}
					if _, _, err := get(ctx, g, "GET", uri); err != end || s.dials() != 1 {
						t.Errorf("it is %v, over %d connections; want %v over 1", err, s.dials(), end)
					}
					if _, _, err := get(ctx, g, "GET", uri); err != end || s.dials() != 1 {
						t.Errorf("again it is %v, over %d connections; want %v over 1", err, s.dials(), end)
					}
					<-s.peers[0].gone
					if got := len(g.idle); got != 0 {
						t.Errorf("%d connections are idle, want none", got)
					}
				})
			})
		}
	}
}

// A context may end at the moment when a response ends. Whichever is first, the next request on the
// connection must not be affected.
func TestCanceledAtTheEnd(t *testing.T) {
	g, _ := scripted(t, pairOfSockets, forever(second))
	for i := range 500 {
		ctx, cancel := context.WithCancel(t.Context())
		res, err := g.Send(request(ctx, "GET", uri), nil)
		if err != nil {
			t.Fatal(err)
		}
		go cancel()
		if _, err := io.ReadAll(res.Body); err != nil && err != context.Canceled {
			t.Fatalf("round %d: it ends with %v, want nothing or %v", i, err, context.Canceled)
		}
		if _, body, err := get(t.Context(), g, "GET", uri); body != "second" || err != nil {
			t.Fatalf("round %d: then it is %q, %v; want %q", i, body, err, "second")
		}
	}
}

// A truncated body must never look complete, however often it is read: half an object would be
// taken for a whole one.
func TestBodiesTruncated(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, tt := range []struct {
		name, answer string
		end          func(body io.ReadCloser)
		want         error
	}{
		{"read to the end", second, func(b io.ReadCloser) { drain(b) }, io.EOF},
		{"read to the end and closed", second, func(b io.ReadCloser) { drain(b); b.Close() }, io.EOF},
		{"cut", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", func(b io.ReadCloser) { drain(b) }, io.ErrUnexpectedEOF},
		{"closed before the end", second, func(b io.ReadCloser) { drain(io.LimitReader(b, 1)); b.Close() }, http.ErrBodyReadAfterClose},
		{"canceled", "HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", func(b io.ReadCloser) { cancel(); drain(io.LimitReader(b, 1)) }, context.Canceled},
	} {
		g, _ := scripted(t, pairOfSockets, answers(tt.answer))
		res, err := g.Send(request(ctx, "GET", uri), nil)
		if err != nil {
			t.Fatal(err)
		}
		tt.end(res.Body)
		for range 2 {
			if n, err := res.Body.Read(make([]byte, 9)); n != 0 || err != tt.want {
				t.Errorf("%s: it is %d, %v; want 0, %v", tt.name, n, err, tt.want)
			}
		}
	}
}

// FuzzResponse checks that whatever a server sends before it closes, the result is a response or an
// error, on new and reused connections.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		"", second, waited, "HTTP/1.1 100 Continue\r\n\r\n" + second, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.0 200 OK\r\n\r\nabc", "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n" + second,
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, said string, head bool) {
		synctest.Test(t, func(t *testing.T) {
			method := "GET"
			if head {
				method = "HEAD"
			}
			g, s := scripted(t, pairOfPipes, answers(said), answers(second, said), forever(second))
			for range 4 {
				status, body, err := get(t.Context(), g, method, uri)
				if err == nil && (status < 200 || head && body != "") || len(body) > len(said)+len(second) {
					t.Errorf("%q is %d, %q, %v", said, status, body, err)
				}
			}
			g.CloseIdleConnections()
			for _, p := range s.peers {
				<-p.gone // no connection is left behind
			}
		})
	})
}

// BenchmarkGets reads objects of 50 KiB, 32 concurrently.
func BenchmarkGets(b *testing.B) {
	object := make([]byte, 50<<10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(object)))
		w.Write(object) //nolint:errcheck // its reader complains
	}))
	defer srv.Close()
	transport, err := NewTransport("")
	if err != nil {
		b.Fatal(err)
	}
	g := newClient(b, srv.URL, transport)
	for _, bb := range []struct {
		name string
		send func(*http.Request) (*http.Response, error)
	}{
		{"getter", func(r *http.Request) (*http.Response, error) { return g.Send(r, nil) }},
		{"transport", transport.RoundTrip},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(object)))
			work := make(chan struct{})
			var pool sync.WaitGroup
			for range 32 {
				pool.Go(func() {
					buf := make([]byte, 64<<10)
					for range work {
						res, err := bb.send(request(b.Context(), "GET", srv.URL))
						if err != nil {
							b.Error(err)
							continue
						}
						if n, err := io.ReadFull(res.Body, buf); n != len(object) || err != io.ErrUnexpectedEOF {
							b.Errorf("%d bytes, %v; want %d", n, err, len(object))
						}
						res.Body.Close()
					}
				})
			}
			for b.Loop() {
				work <- struct{}{}
			}
			close(work)
			pool.Wait()
		})
	}
}

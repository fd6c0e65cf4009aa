package objectstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stager-dev/stager/backends"
)

// someBytes returns the same bytes on every call.
func someBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // it cannot fail
	return b
}

// fileOf returns a file with the given content.
func fileOf(t testing.TB, content []byte) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "content")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// counting is a file that counts the bytes sent by the kernel.
type counting struct {
	io.ReaderAt
	file *os.File
	sent int64
}

func (c *counting) File() *os.File      { return c.file }
func (c *counting) Sent(_ int64, n int) { c.sent += int64(n) }

// TestLongBodies uploads parts of a file and of memory in every possible way. Plain HTTP uses
// sendfile.
func TestLongBodies(t *testing.T) {
	content := someBytes(5<<20 + 3)
	file := fileOf(t, content)
	arrived := make(chan []byte, 1)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, _ := io.ReadAll(r.Body) // the received bytes are compared
		arrived <- got
		w.Header().Set("From", r.RemoteAddr)
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secure.Close()
	proxy, _ := url.Parse(plain.URL)
	for _, way := range []struct {
		name    string
		srv     *httptest.Server
		proxy   *url.URL
		byFiles bool // without reading them
	}{
		{"in the clear", plain, nil, true},
		{"over TLS", secure, nil, false},
		{"by a proxy", plain, proxy, false},
	} {
		transport, err := NewTransport("")
		if err != nil {
			t.Fatal(err)
		}
		transport.Proxy = http.ProxyURL(way.proxy)
		if way.srv == secure {
			transport.TLSClientConfig = secure.Client().Transport.(*http.Transport).TLSClientConfig
		}
		g := newClient(t, way.srv.URL, transport)
		connections := make(map[string]bool)
		for _, tt := range []struct{ off, n int }{
			{0, shortBody}, {1, shortBody + 1}, {4095, 1 << 20}, {0, len(content)}, {7, len(content) - 7},
		} {
			in := &counting{file, file, 0}
			for _, src := range []io.ReaderAt{in, file, bytes.NewReader(content)} {
				body := backends.NewPart(src, int64(tt.off), int64(tt.n))
				for range 2 { // it is read from its beginning
					res, err := g.Send(request(t.Context(), "PUT", way.srv.URL), body)
					if err != nil {
						t.Fatalf("%s, %d bytes of a %T: %v", way.name, tt.n, src, err)
					}
					drain(res.Body)
					connections[res.Header.Get("From")] = true
					if got := <-arrived; !bytes.Equal(got, content[tt.off:tt.off+tt.n]) {
						t.Errorf("%s, a %T: the server has %d bytes that are not the %d from %d on", way.name, src, len(got), tt.n, tt.off)
					}
				}
			}
			want := int64(0)
			if way.byFiles && tt.n > shortBody {
				want = 2 * int64(tt.n)
			}
			if in.sent != want {
				t.Errorf("%s, %d bytes, twice: the kernel sent %d of them from the file, want %d", way.name, tt.n, in.sent, want)
			}
		}
		if got := len(connections); got != 1 {
			t.Errorf("%s: %d connections, want 1", way.name, got)
		}
	}
}

// TestResponsesBeforeTheBody covers a server that responds before it has read the whole body. The
// response is read however long the rest is delayed, and the connection is not reused.
func TestResponsesBeforeTheBody(t *testing.T) {
	const more = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"
	content := someBytes(8 << 20) // more than socket buffers hold
	file := fileOf(t, content)
	for _, tt := range []struct {
		name, before string // sent after the head; the server may read on
		reads        bool
		after        string // sent after the body
		status       int
		err          string
		dials        int // for this and another request
	}{
		{"a refusal", "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n", false, "", 503, "", 2},
		{"a refusal that comes in between", more + "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", false, "", 403, "", 2},
		{"consent to what it does not have", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false, "", 0, "before all bytes were sent", 2},
		{"nonsense", "what?\r\n\r\n", false, "", 0, "malformed HTTP", 2},
		{"words before the answer", more, true, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, "", 1},
	} {
		for _, src := range []io.ReaderAt{file, bytes.NewReader(content)} {
			g, s := scripted(t, pairOfSockets, func(p *peer) {
				req, err := http.ReadRequest(p.in)
				if err != nil || !p.say(tt.before) {
					return
				}
				if !tt.reads {
					<-t.Context().Done() // the client must not wait for this
					return
				}
				got, _ := io.ReadAll(req.Body) // the received bytes are compared
				if bytes.Equal(got, content) && p.say(tt.after) {
					forever(second)(p)
				}
			}, forever(second))
			res, err := g.Send(request(t.Context(), "PUT", uri), backends.NewPart(src, 0, int64(len(content))))
			status := 0
			if err == nil {
				status = res.StatusCode
				drain(res.Body)
			}
			if status != tt.status || !says(err, tt.err) {
				t.Errorf("%s, a %T: it is %d, %v; want %d, %q", tt.name, src, status, err, tt.status, tt.err)
			}
			if _, body, err := get(t.Context(), g, "GET", uri); body != "second" || err != nil || s.dials() != tt.dials {
				t.Errorf("%s, a %T: then it is %q, %v, over %d connections; want %q over %d", tt.name, src, body, err, s.dials(), "second", tt.dials)
			}
		}
	}
}

// failing is a source that ends after some bytes.
type failing struct{ after int64 }

var errDisk = errors.New("the disk is broken")

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	n := max(0, min(int64(len(p)), f.after-off))
	if n < int64(len(p)) {
		return int(n), errDisk
	}
	return int(n), nil
}

// An unreadable body fails the request at once, with its own error: a server that still expects
// bytes does not respond.
func TestBodiesUnreadable(t *testing.T) {
	short := fileOf(t, make([]byte, 1<<20))
	for _, tt := range []struct {
		name string
		src  io.ReaderAt
		size int64
		want string
	}{
		{"a short one", failing{5}, 6, errDisk.Error()},
		{"a long one", failing{1 << 20}, 2 << 20, errDisk.Error()},
		{"a file that became shorter", short, 2 << 20, "truncated"},
	} {
		g, s := scripted(t, pairOfSockets, func(p *peer) { drain(p) }, forever(second))
		_, err := g.Send(request(t.Context(), "PUT", uri), backends.NewPart(tt.src, 0, tt.size))
		var local *backends.LocalError
		if !errors.As(err, &local) || !says(err, tt.want) {
			t.Errorf("%s: it is %v, want a LocalError, %q", tt.name, err, tt.want)
		}
		if _, body, err := get(t.Context(), g, "GET", uri); body != "second" || err != nil || s.dials() != 2 {
			t.Errorf("%s: then it is %q, %v, over %d connections; want %q over 2", tt.name, body, err, s.dials(), "second")
		}
	}
}

// A server that closes an idle connection with a 408 may do so while the body is being sent.
func TestBodyIsSentAgain(t *testing.T) {
	content := strings.Repeat("content", 1<<16)
	g, s := scripted(t, pairOfSockets, answers(second, waited), func(p *peer) {
		if req, err := http.ReadRequest(p.in); err == nil {
			if got, _ := io.ReadAll(req.Body); string(got) == content {
				p.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
		}
	})
	if _, body, err := get(t.Context(), g, "GET", uri); body != "second" || err != nil {
		t.Fatalf("it is %q, %v; want %q", body, err, "second")
	}
	res, err := g.Send(request(t.Context(), "PUT", uri), section([]byte(content)))
	if err != nil || res.StatusCode != http.StatusOK || s.dials() != 2 {
		t.Errorf("then it is %v over %d connections, want 200 OK over 2", err, s.dials())
	}
}

// When the context ends, sending a body that the server does not read ends, too.
func TestBodyIsCanceled(t *testing.T) {
	content := make([]byte, 8<<20)
	for _, src := range []io.ReaderAt{fileOf(t, content), bytes.NewReader(content)} {
		ctx, cancel := context.WithCancel(t.Context())
		g, _ := scripted(t, pairOfSockets, func(p *peer) {
			p.asked()
			cancel()
			<-t.Context().Done()
		})
		if _, err := g.Send(request(ctx, "PUT", uri), backends.NewPart(src, 0, int64(len(content)))); !errors.Is(err, context.Canceled) {
			t.Errorf("a %T: it is %v, want %v", src, err, context.Canceled)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		g, _ := scripted(t, pairOfPipes, func(p *peer) {
			p.asked()
			cancel()
			p.asked()
		})
		if _, err := g.Send(request(ctx, "PUT", uri), section(content)); !errors.Is(err, context.Canceled) {
			t.Errorf("it is %v, want %v", err, context.Canceled)
		}
	})
}

var _ backends.InFile = (*counting)(nil)

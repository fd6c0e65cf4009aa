package objectstore

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// A server is one whose every byte a test controls. It serves each connection with the script of
// its number; the last script repeats.
type server struct {
	pair    func() (client, server net.Conn)
	scripts []func(*peer)

	mu    sync.Mutex
	peers []*peer
}

// A peer is the server's end of a connection.
type peer struct {
	net.Conn
	in   *bufio.Reader
	gone chan struct{} // closed when the script has ended
}

// asked waits for a request. It returns false if there are no more.
func (p *peer) asked() bool {
	_, err := http.ReadRequest(p.in)
	return err == nil
}

func (p *peer) say(s string) bool {
	_, err := io.WriteString(p, s)
	return err == nil
}

// drain reads everything up to an error.
func drain(r io.Reader) { _, _ = io.Copy(io.Discard, r) }

// answers sends one response per request, then closes.
func answers(all ...string) func(*peer) {
	return func(p *peer) {
		for _, s := range all {
			if !p.asked() || !p.say(s) {
				return
			}
		}
	}
}

// forever sends the same response to each request.
func forever(answer string) func(*peer) {
	return func(p *peer) {
		for p.asked() && p.say(answer) {
		}
	}
}

// pairOfPipes returns connections that work in a synctest bubble.
func pairOfPipes() (client, server net.Conn) { return net.Pipe() }

// pairOfSockets returns connections with immediate delivery.
func pairOfSockets() (client, server net.Conn) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		panic(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		unix.CloseOnExec(fd)
		file := os.NewFile(uintptr(fd), "")
		if ends[i], err = net.FileConn(file); err != nil {
			panic(err)
		}
		file.Close()
	}
	return ends[0], ends[1]
}

func (s *server) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	client, conn := s.pair()
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &peer{Conn: conn, in: bufio.NewReader(conn), gone: make(chan struct{})}
	script := s.scripts[min(len(s.peers), len(s.scripts)-1)]
	s.peers = append(s.peers, p)
	go func() {
		defer close(p.gone)
		defer p.Close()
		script(p)
	}()
	return client, nil
}

// dials returns the number of connections made.
func (s *server) dials() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.peers)
}

func newClient(t testing.TB, base string, transport *http.Transport) *Client {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	g, err := NewClient(u, transport)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.CloseIdleConnections)
	return g
}

// scripted returns a Client of a server that follows the scripts.
func scripted(t testing.TB, pair func() (client, server net.Conn), scripts ...func(*peer)) (*Client, *server) {
	t.Helper()
	transport, err := NewTransport("")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{pair: pair, scripts: scripts}
	transport.DialContext, transport.Proxy = s.dial, nil
	return newClient(t, "http://store.example", transport), s
}

func request(ctx context.Context, method, uri string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, uri, nil)
	if err != nil {
		panic(err)
	}
	return req
}

const uri = "http://store.example/bucket/key"

// get returns the status and the body, or an error: never both.
func get(ctx context.Context, g *Client, method, uri string) (status int, body string, err error) {
	res, err := g.Send(request(ctx, method, uri), nil)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

package objectstore

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/stager-dev/stager/backends"
)

// A Client sends requests to one host over persistent connections. It resembles a http.Transport,
// but the calling goroutine writes the request and reads the response itself. A Transport uses two
// more goroutines per connection. Waking them takes longer than everything else that a small object
// needs, and with hundreds of connections they also cost memory.
//
// The context of the request limits the time of the response. The response body is not safe for
// concurrent use. Reading to EOF returns the connection to the pool. Closing early discards it.
type Client struct {
	transport *http.Transport // dials, and handles everything with a proxy
	proxied   bool
	address   string
	tls       *tls.Config // nil: plain text

	mu     sync.Mutex    // guards the fields below
	idle   []*connection // the most recently used is last
	expiry *time.Timer
}

const (
	// maxHead is the maximum size of a response head.
	maxHead = 1 << 20
	// headBuffer holds most heads, and the part of the body that arrives with one. The rest of the body
	// bypasses it. Each connection has one.
	headBuffer = 2 << 10
)

// NewClient returns a client for the host of base. It uses the dialer, CA pool, proxy, handshake
// timeout and idle timeout of a transport from NewTransport.
func NewClient(base *url.URL, transport *http.Transport) (*Client, error) {
	g := &Client{transport: transport}
	if transport.Proxy != nil {
		proxy, err := transport.Proxy(&http.Request{URL: base})
		if err != nil {
			return nil, backends.Errorf(backends.Invalid, "open", "", "proxy from the environment: %w", err)
		}
		g.proxied = proxy != nil
	}
	port := base.Port()
	if base.Scheme == "https" {
		g.tls = new(tls.Config)
		if of := transport.TLSClientConfig; of != nil {
			g.tls = of.Clone()
		}
		g.tls.ServerName = base.Hostname()
		g.tls.DynamicRecordSizingDisabled = true // else the first records of a connection have 1.4 KB
		g.tls.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		if port == "" {
			port = "443"
		}
	}
	if port == "" {
		port = "80"
	}
	g.address = net.JoinHostPort(base.Hostname(), port)
	return g, nil
}

// Send sends a request and returns the response. body, which may be nil, replaces the body of req
// and is read from its beginning. An error of reading it is returned as it is. A GET or HEAD is
// sent again if a reused connection turns out to be closed.
func (g *Client) Send(req *http.Request, body *backends.Part) (*http.Response, error) {
	if g.proxied {
		if length(body) > 0 {
			req.Body, req.ContentLength = Moving(req.Context(), io.NopCloser(body.Reader())), body.Size()
		}
		return g.transport.RoundTrip(req)
	}
	ctx := req.Context()
	for ctx.Err() == nil {
		res, again, err := g.sendOnce(req, body)
		if err == nil || !again && ctx.Err() == nil {
			return res, err
		}
	}
	return nil, ctx.Err()
}

// sendOnce sends the request over one connection. again reports whether an error justifies another
// connection.
func (g *Client) sendOnce(req *http.Request, body *backends.Part) (res *http.Response, again bool, err error) {
	w, err := g.conn(req.Context())
	if err != nil {
		return nil, false, err
	}
	if w.out, err = appendRequest(w.out[:0], req, body); err != nil {
		g.putIdle(w) // the connection is still intact
		return nil, false, err
	}
	if res, err = w.roundTrip(req, body); err == nil {
		return res, false, nil
	}
	w.conn.Close() //nolint:errcheck // nothing more comes of it
	// A server closes idle connections, which may become visible only on the next use. Once it has
	// begun to respond, a retry would yield the same response. A request that changes something may
	// already have done so, which the retry would observe.
	method := cmp.Or(req.Method, http.MethodGet)
	unheard := w.left == maxHead && (method == http.MethodGet || method == http.MethodHead)
	return nil, w.kept && (unheard || errors.Is(err, errWaited)), err
}

// conn returns the most recently used connection that is still usable, or a new one.
func (g *Client) conn(ctx context.Context) (*connection, error) {
	for w := g.lastIdle(); w != nil; w = g.lastIdle() {
		if w.unused() {
			w.kept = true
			return w, nil
		}
		w.conn.Close() //nolint:errcheck // nothing more comes of it
	}
	// A handshake needs a large stack, which its goroutine keeps. So it runs in its own goroutine
	// and not in that of the request.
	var w *connection
	var err error
	made := make(chan struct{})
	go func() {
		defer close(made)
		w, err = g.connect(ctx)
	}()
	<-made
	return w, err
}

// connect opens a connection.
func (g *Client) connect(ctx context.Context) (*connection, error) {
	conn, err := g.transport.DialContext(ctx, "tcp", g.address)
	if err != nil {
		return nil, err
	}
	w := &connection{client: g, conn: conn, socket: newSocket(conn)}
	w.look = w.socket
	if g.tls != nil {
		if w.conn, err = g.handshake(ctx, w.socket); err != nil {
			return nil, err
		}
		w.look = w.conn
	}
	w.in = bufio.NewReaderSize(w, headBuffer)
	return w, nil
}

// lastIdle removes the most recently used idle connection from the pool; nil if there is none.
func (g *Client) lastIdle() *connection {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := len(g.idle) - 1
	if last < 0 {
		return nil
	}
	w := g.idle[last]
	g.idle[last] = nil
	g.idle = g.idle[:last]
	return w
}

// handshake performs the TLS handshake.
func (g *Client) handshake(ctx context.Context, conn net.Conn) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, g.transport.TLSHandshakeTimeout)
	defer cancel()
	secure := tls.Client(&recordConn{Conn: conn}, g.tls)
	err := secure.HandshakeContext(ctx)
	if err == nil {
		return secure, nil
	}
	conn.Close() //nolint:errcheck // nothing more comes of it
	var record tls.RecordHeaderError
	if errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/" {
		err = http.ErrSchemeMismatch
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: conn.RemoteAddr(), Err: err}
}

// putIdle returns a connection without a pending request to the pool.
func (g *Client) putIdle(w *connection) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w.since = time.Now()
	g.idle = append(g.idle, w)
	if g.expiry == nil {
		g.expiry = time.AfterFunc(g.transport.IdleConnTimeout, g.expire)
	}
}

// expire closes the connections that have been idle for too long.
func (g *Client) expire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := 0
	for old < len(g.idle) && time.Since(g.idle[old].since) >= g.transport.IdleConnTimeout {
		old++
	}
	g.dropLocked(old)
	if g.expiry = nil; len(g.idle) > 0 {
		g.expiry = time.AfterFunc(g.transport.IdleConnTimeout-time.Since(g.idle[0].since), g.expire)
	}
}

// dropLocked closes the first n idle connections.
func (g *Client) dropLocked(n int) {
	for _, w := range g.idle[:n] {
		w.conn.Close() //nolint:errcheck // nobody uses it
	}
	rest := copy(g.idle, g.idle[n:])
	clear(g.idle[rest:])
	g.idle = g.idle[:rest]
}

// CloseIdleConnections closes all idle connections.
func (g *Client) CloseIdleConnections() {
	g.transport.CloseIdleConnections()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dropLocked(len(g.idle))
	if g.expiry != nil {
		g.expiry.Stop()
		g.expiry = nil
	}
}

// connection is one connection to the host.
type connection struct {
	client *Client
	conn   net.Conn
	socket *socket       // the socket below conn
	look   io.Reader     // reads conn, without blocking while socket.hurry is set
	in     *bufio.Reader // buffers reads from the connection
	out    []byte        // the request head
	parts  net.Buffers   // out and a short body; a slice of whole
	whole  [2][]byte
	left   int64     // bytes that may still be read
	err    error     // why reading failed
	kept   bool      // it was reused
	since  time.Time // start of the idle time
	spare  [1]byte
}

// unused reports whether an idle connection is still usable. A closed one is useless. Unsolicited
// bytes would be taken for the response to the next request.
func (w *connection) unused() bool {
	w.socket.hurry = true
	n, err := w.look.Read(w.spare[:])
	w.socket.hurry = false
	return n == 0 && errors.Is(err, errNothing)
}

// Read implements io.Reader for in.
func (w *connection) Read(p []byte) (int, error) {
	if w.left <= 0 {
		w.err = fmt.Errorf("the response header exceeds %d bytes", maxHead)
		return 0, w.err
	}
	n, err := w.conn.Read(p)
	w.left -= int64(n)
	if w.err = err; err == io.EOF { //nolint:errorlint // the end of a connection is that of no answer
		w.err = io.ErrUnexpectedEOF
	}
	return n, err
}

// roundTrip sends the request in out and reads the response head. After an error the connection
// must not be reused.
func (w *connection) roundTrip(req *http.Request, body *backends.Part) (*http.Response, error) {
	w.left = maxHead
	ctx := req.Context()
	stop := context.AfterFunc(ctx, func() {
		w.conn.SetDeadline(time.Unix(1, 0)) //nolint:errcheck // then it is closed
	})
	res, broken, err := w.exchange(req, body)
	if err == nil && broken != nil && res.StatusCode < http.StatusMultipleChoices {
		err = backends.Errorf(backends.Unavailable, "write", "", "the server reported success before all bytes were sent")
	}
	if err != nil {
		stop()
		return nil, err
	}
	rest := &responseBody{ReadCloser: res.Body, ctx: ctx, conn: w, stop: stop, last: res.Close || broken != nil}
	if res.Body == http.NoBody {
		rest.end(io.EOF)
	}
	res.Body = rest
	return res, nil
}

// appendRequest appends the head of a request to b.
func appendRequest(b []byte, req *http.Request, body *backends.Part) ([]byte, error) {
	method, host, uri := cmp.Or(req.Method, http.MethodGet), cmp.Or(req.Host, req.URL.Host), req.URL.RequestURI()
	if !httpguts.ValidHeaderFieldName(method) || !httpguts.ValidHostHeader(host) || // methods are spelled as names are
		!httpguts.ValidHeaderFieldValue(uri) || strings.ContainsAny(uri, " \t") {
		return b, fmt.Errorf("%s %q is not a valid request to %q", method, uri, host)
	}
	b = append(append(b, method...), ' ')
	b = append(append(b, uri...), " HTTP/1.1\r\nHost: "...)
	b = append(append(b, host...), "\r\n"...)
	if n := length(body); n > 0 || method != http.MethodGet && method != http.MethodHead {
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), n, 10), "\r\n"...)
	}
	for name, values := range req.Header {
		for _, value := range values {
			if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
				return b, fmt.Errorf("invalid header %q", name)
			}
			b = append(append(b, name...), ": "...)
			b = append(append(b, value...), "\r\n"...)
		}
	}
	return append(b, "\r\n"...), nil
}

// errWaited reports a status 408 on a reused connection.
var errWaited = errors.New("the server closed the idle connection")

// readResponse reads the head of the response to req.
func (w *connection) readResponse(req *http.Request) (*http.Response, error) {
	for {
		if first, err := w.in.Peek(1); err == nil && first[0] == tlsAlert {
			return nil, ErrExpectsTLS
		}
		res, err := http.ReadResponse(w.in, req)
		switch {
		case err != nil:
			return nil, cmp.Or(w.err, err) // a truncated head looks malformed
		case res.StatusCode == http.StatusSwitchingProtocols:
			return nil, errors.New("the server switched to an unrequested protocol")
		case res.StatusCode < http.StatusContinue:
			return nil, fmt.Errorf("the server returned the invalid status %q", res.Status)
		case res.StatusCode < http.StatusOK: // an interim response
			continue
		case res.StatusCode == http.StatusRequestTimeout && w.kept:
			return nil, errWaited
		}
		w.left = math.MaxInt64
		return res, nil
	}
}

// responseBody is the body of a response.
type responseBody struct {
	io.ReadCloser
	ctx  context.Context //nolint:containedctx // it is that of the request
	conn *connection     // nil: returned to the pool or closed
	err  error           // the result of Read after that
	stop func() bool     // stops watching ctx
	last bool            // the server closes the connection afterwards
}

func (c *responseBody) Read(p []byte) (int, error) {
	if c.conn == nil {
		return 0, c.err
	}
	n, err := c.ReadCloser.Read(p)
	if err == nil {
		return n, nil
	}
	if err != io.EOF && c.ctx.Err() != nil { //nolint:errorlint // the end itself, and not that of something in it
		err = c.ctx.Err()
	}
	c.end(err)
	return n, err
}

// Close discards the unread rest.
func (c *responseBody) Close() error {
	c.end(http.ErrBodyReadAfterClose)
	return nil
}

// end releases the connection. If err is io.EOF, the response was read completely.
func (c *responseBody) end(err error) {
	w := c.conn
	if w == nil {
		return
	}
	c.conn, c.err = nil, err
	if c.stop() && err == io.EOF && !c.last && w.err == nil && w.in.Buffered() == 0 { //nolint:errorlint // as above
		w.client.putIdle(w)
		return
	}
	w.conn.Close() //nolint:errcheck // nothing more comes of it
}

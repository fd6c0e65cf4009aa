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

// A Client sends requests to one host, over connections that it keeps. It is what a
// http.Transport is to that host, but the goroutine that asks writes the request and
// reads the answer itself. A Transport has two more for each connection, and to wake them
// takes longer than all else that a small object needs of it; with hundreds of connections
// they take memory, too.
//
// How long an answer may take is for the request's context to say. The answer's body is for
// one goroutine at a time. Read to its end it gives the connection back; closed before, it
// ends it.
type Client struct {
	transport *http.Transport // dials, and does all where a proxy is in the way
	proxied   bool
	address   string
	tls       *tls.Config // nil: in the clear

	mu     sync.Mutex    // guards all below
	idle   []*connection // the one that was used last is last
	expiry *time.Timer
}

const (
	// maxHead is how long the head of an answer may be.
	maxHead = 1 << 20
	// headBuffer is for the head, and for what of the body comes with it; the rest of
	// that is read past it.
	headBuffer = 4 << 10
)

// NewClient makes one for the host of base, with the dialer, the authorities, the proxy of a
// transport that NewTransport made, and how long that waits for a handshake and keeps what
// is idle.
func NewClient(base *url.URL, transport *http.Transport) (*Client, error) {
	g := &Client{transport: transport}
	if transport.Proxy != nil {
		proxy, err := transport.Proxy(&http.Request{URL: base})
		if err != nil {
			return nil, backends.Errorf(backends.Invalid, "open", "", "the proxy that the environment names: %w", err)
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

// Send sends a request to the host and returns what is answered. Its body, nil for none, is
// an argument, which is read from its beginning; the request has none. Where reading it fails
// that is the error. A GET or a HEAD is sent again where a connection turns out to have ended.
func (g *Client) Send(req *http.Request, body *io.SectionReader) (*http.Response, error) {
	if g.proxied {
		if length(body) > 0 {
			req.Body, req.ContentLength = Moving(req.Context(), io.NopCloser(io.NewSectionReader(body, 0, body.Size()))), body.Size()
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

// sendOnce asks over one connection, and tells of an error whether to ask over another.
func (g *Client) sendOnce(req *http.Request, body *io.SectionReader) (res *http.Response, again bool, err error) {
	w, err := g.conn(req.Context())
	if err != nil {
		return nil, false, err
	}
	if w.out, err = appendRequest(w.out[:0], req, body); err != nil {
		g.putIdle(w) // it is none the worse for that
		return nil, false, err
	}
	if res, err = w.roundTrip(req, body); err == nil {
		return res, false, nil
	}
	w.conn.Close() //nolint:errcheck // nothing more comes of it
	// A server ends connections that nobody uses, which may show only when one is used. Once
	// it has begun to answer, another would hear the same; and what was to change something
	// may have done so, which the next would find.
	method := cmp.Or(req.Method, http.MethodGet)
	unheard := w.left == maxHead && (method == http.MethodGet || method == http.MethodHead)
	return nil, w.kept && (unheard || errors.Is(err, errWaited)), err
}

// conn takes the connection that was used last and is still of use, or makes one.
func (g *Client) conn(ctx context.Context) (*connection, error) {
	for w := g.lastIdle(); w != nil; w = g.lastIdle() {
		if w.unused() {
			w.kept = true
			return w, nil
		}
		w.conn.Close() //nolint:errcheck // nothing more comes of it
	}
	// A handshake takes a large stack, which a goroutine keeps. Each request has one.
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

// connect makes a connection.
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

// lastIdle takes the connection that was used last; nil if none is idle.
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

// handshake shakes hands.
func (g *Client) handshake(ctx context.Context, conn net.Conn) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, g.transport.TLSHandshakeTimeout)
	defer cancel()
	secure := tls.Client(conn, g.tls)
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

// putIdle takes back a connection over which nothing is under way.
func (g *Client) putIdle(w *connection) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w.since = time.Now()
	g.idle = append(g.idle, w)
	if g.expiry == nil {
		g.expiry = time.AfterFunc(g.transport.IdleConnTimeout, g.expire)
	}
}

// expire ends the connections that nobody has used for too long.
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

// dropLocked ends the first n connections that are idle.
func (g *Client) dropLocked(n int) {
	for _, w := range g.idle[:n] {
		w.conn.Close() //nolint:errcheck // nobody uses it
	}
	rest := copy(g.idle, g.idle[n:])
	clear(g.idle[rest:])
	g.idle = g.idle[:rest]
}

// CloseIdleConnections ends the connections that nobody uses.
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

// connection is a connection.
type connection struct {
	client *Client
	conn   net.Conn
	socket *socket       // what is below it
	look   io.Reader     // reads conn as the socket does
	in     *bufio.Reader // reads from the wire
	out    []byte        // a request
	left   int64         // bytes that may come still
	err    error         // why none do
	kept   bool          // it had another request before
	since  time.Time     // it is idle
	spare  [1]byte
}

// unused tells of a connection that was idle whether the server left it as it was. One that
// it has closed is of no use, and what came over one unasked would be taken for the answer
// to the next request.
func (w *connection) unused() bool {
	w.socket.hurry = true
	n, err := w.look.Read(w.spare[:])
	w.socket.hurry = false
	return n == 0 && errors.Is(err, errNothing)
}

// Read implements io.Reader for in.
func (w *connection) Read(p []byte) (int, error) {
	if w.left <= 0 {
		w.err = fmt.Errorf("the head of the answer has more than %d bytes", maxHead)
		return 0, w.err
	}
	n, err := w.conn.Read(p)
	w.left -= int64(n)
	if w.err = err; err == io.EOF { //nolint:errorlint // the end of a connection is that of no answer
		w.err = io.ErrUnexpectedEOF
	}
	return n, err
}

// roundTrip sends the request that is in out, and reads the head of the answer. After an error
// the wire is of no more use.
func (w *connection) roundTrip(req *http.Request, body *io.SectionReader) (*http.Response, error) {
	w.left = maxHead
	ctx := req.Context()
	stop := context.AfterFunc(ctx, func() {
		w.conn.SetDeadline(time.Unix(1, 0)) //nolint:errcheck // then it is closed
	})
	res, broken, err := w.exchange(req, body)
	if err == nil && broken != nil && res.StatusCode < http.StatusMultipleChoices {
		err = backends.Errorf(backends.Unavailable, "write", "", "the server said that it has the bytes before all were sent")
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

// appendRequest appends the head of a request.
func appendRequest(b []byte, req *http.Request, body *io.SectionReader) ([]byte, error) {
	method, host, uri := cmp.Or(req.Method, http.MethodGet), cmp.Or(req.Host, req.URL.Host), req.URL.RequestURI()
	if !httpguts.ValidHeaderFieldName(method) || !httpguts.ValidHostHeader(host) || // methods are spelled as names are
		!httpguts.ValidHeaderFieldValue(uri) || strings.ContainsAny(uri, " \t") {
		return b, fmt.Errorf("%s %q cannot be asked of %q", method, uri, host)
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
				return b, fmt.Errorf("the header %q cannot be sent as it is", name)
			}
			b = append(append(b, name...), ": "...)
			b = append(append(b, value...), "\r\n"...)
		}
	}
	return append(b, "\r\n"...), nil
}

// errWaited is what a 408 on a connection says that had a request before.
var errWaited = errors.New("the server has waited too long for another request")

// readResponse reads the head of the answer to a request.
func (w *connection) readResponse(req *http.Request) (*http.Response, error) {
	for {
		if first, err := w.in.Peek(1); err == nil && first[0] == tlsAlert {
			return nil, ErrExpectsTLS
		}
		res, err := http.ReadResponse(w.in, req)
		switch {
		case err != nil:
			return nil, cmp.Or(w.err, err) // a head that is cut seems to be a wrong one
		case res.StatusCode == http.StatusSwitchingProtocols:
			return nil, errors.New("the server goes on with a protocol that nobody asked for")
		case res.StatusCode < http.StatusContinue:
			return nil, fmt.Errorf("the server answers with the status %q, which there is not", res.Status)
		case res.StatusCode < http.StatusOK: // what it says before it answers
			continue
		case res.StatusCode == http.StatusRequestTimeout && w.kept:
			return nil, errWaited
		}
		w.left = math.MaxInt64
		return res, nil
	}
}

// responseBody is the body of an answer.
type responseBody struct {
	io.ReadCloser
	ctx  context.Context //nolint:containedctx // it is that of the request
	conn *connection     // nil: it has gone its way
	err  error           // what Read says since then
	stop func() bool     // ends the watch over ctx
	last bool            // the server ends the connection behind it
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

// Close ends what was not read.
func (c *responseBody) Close() error {
	c.end(http.ErrBodyReadAfterClose)
	return nil
}

// end lets go of the connection, which was read up to its next answer if err is io.EOF.
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

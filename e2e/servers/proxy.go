package servers

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// Proxy stands before a plain HTTP server, counts what is asked of it and goes wrong
// when told to. Requests pass as they are, Host and signature with them.
//
// Each fault holds for the next so many requests and has its own count; a request
// meets the first of them that has any left, in the order reset, hang, slow-down, cut, drip.
type Proxy struct {
	URL string

	server *httptest.Server
	pass   *httputil.ReverseProxy

	mu     sync.Mutex // guards all below
	counts map[Request]int
	sent   int64
	down   bool
	delay  time.Duration
	resets int
	hangs  int
	slow   int
	cuts   int
	cutAt  int64
	drips  int
	rate   int64 // bytes a second of an answer that drips

	expires bool // after so many requests
	good    int
}

// Request is what Proxy counts by.
type Request struct{ Method, Path string }

// NewProxy starts a proxy before the server at target, such as S3.Endpoint.
func NewProxy(target string) (*Proxy, error) {
	to, err := url.Parse(target)
	if err != nil || to.Scheme != "http" {
		return nil, fmt.Errorf("a proxy stands before plain HTTP, not %s", target)
	}
	p := &Proxy{counts: make(map[Request]int)}
	p.pass = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host // and Host as it was signed
		},
		Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 256},
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.server = httptest.NewServer(p)
	p.URL = p.server.URL
	return p, nil
}

// Close ends the proxy and all connections through it.
func (p *Proxy) Close() {
	p.server.CloseClientConnections()
	p.server.Close()
}

// Down makes the server unreachable, until it is told otherwise.
func (p *Proxy) Down(down bool) { p.set(func() { p.down = down }) }

// Delay holds each request back for so long.
func (p *Proxy) Delay(d time.Duration) { p.set(func() { p.delay = d }) }

// Reset breaks the connection of the next n requests without an answer.
func (p *Proxy) Reset(n int) { p.set(func() { p.resets = n }) }

// SlowDown answers the next n requests with the 503 of an overloaded store.
func (p *Proxy) SlowDown(n int) { p.set(func() { p.slow = n }) }

// Cut breaks the next n answers to GET after so many bytes of their bodies.
func (p *Proxy) Cut(n int, after int64) { p.set(func() { p.cuts, p.cutAt = n, after }) }

// Hang takes the next n requests and never answers, until the client gives up.
func (p *Proxy) Hang(n int) { p.set(func() { p.hangs = n }) }

// Drip sends the next n answers to GET at so many bytes a second each.
func (p *Proxy) Drip(n int, rate int64) { p.set(func() { p.drips, p.rate = n, rate }) }

// Calm ends all faults but those that requests have already met.
func (p *Proxy) Calm() {
	p.set(func() {
		p.down, p.delay, p.resets, p.hangs, p.slow, p.cuts, p.drips, p.expires = false, 0, 0, 0, 0, 0, 0, false
	})
}

// ExpireAfter answers all requests but the next n with the 400 of a token that has expired.
func (p *Proxy) ExpireAfter(n int) { p.set(func() { p.expires, p.good = true, n }) }

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// Counts are the requests so far, also those that went wrong.
func (p *Proxy) Counts() map[Request]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := make(map[Request]int, len(p.counts))
	for r, n := range p.counts {
		counts[r] = n
	}
	return counts
}

// Sent is how many bytes of bodies went to clients.
func (p *Proxy) Sent() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}

// ServeHTTP passes a request on, or does what was ordered.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.counts[Request{r.Method, r.URL.Path}]++
	delay, down := p.delay, p.down
	take := func(n *int) bool {
		if *n > 0 {
			*n--
			return true
		}
		return false
	}
	reset := down || take(&p.resets)
	expired := p.expires && !take(&p.good)
	hang := !reset && take(&p.hangs)
	slow := !reset && !hang && take(&p.slow)
	counted := &countingWriter{ResponseWriter: w, proxy: p, left: -1}
	if get := !reset && !hang && !slow && r.Method == http.MethodGet; get && take(&p.cuts) {
		counted.left = p.cutAt
	} else if get && take(&p.drips) {
		counted.rate = p.rate
	}
	p.mu.Unlock()

	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
		}
	}
	switch {
	case reset:
		breakOff(w)
	case hang:
		_, _ = io.Copy(io.Discard, r.Body) // only then is it noticed that the client is gone
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case expired:
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>")
	case slow:
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>")
	default:
		p.pass.ServeHTTP(counted, r)
	}
}

// breakOff ends the connection so that the client sees it reset.
func breakOff(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

var errCut = errors.New("cut, as ordered")

// countingWriter counts an answer's bytes and fails when left, unless negative, is
// used up. Unless rate is 0, it sends so many bytes a second.
type countingWriter struct {
	http.ResponseWriter
	proxy *Proxy
	left  int64
	rate  int64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	cut := c.left >= 0 && int64(len(b)) > c.left
	if cut {
		b = b[:c.left]
	}
	n, err := c.write(b)
	if c.left >= 0 {
		c.left -= int64(n)
	}
	c.proxy.set(func() { c.proxy.sent += int64(n) })
	if cut {
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		return n, errCut
	}
	return n, err
}

func (c *countingWriter) write(b []byte) (n int, err error) {
	if c.rate == 0 {
		return c.ResponseWriter.Write(b)
	}
	const pause = 50 * time.Millisecond
	for part := max(1, int(c.rate*int64(pause)/int64(time.Second))); len(b) > 0 && err == nil; {
		time.Sleep(pause)
		var sent int
		sent, err = c.ResponseWriter.Write(b[:min(part, len(b))])
		n, b = n+sent, b[sent:]
		err = errors.Join(err, http.NewResponseController(c.ResponseWriter).Flush())
	}
	return n, err
}

// Unwrap lets http.ResponseController through.
func (c *countingWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stager-dev/stager/stager/metrictest"
	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

// crowded is a house that serves few connections.
func crowded(t *testing.T, shards int, limits Limits, change ...func(*window.Config)) *house {
	t.Helper()
	h := newHouse(t, shards, 10, change...)
	if err := h.server.Close(); err != nil {
		t.Fatal(err)
	}
	h.limits, h.socket = limits, h.socket+".2"
	h.server = h.serve(h.api.Handler(), "unix", h.socket)
	return h
}

// over reports whether the server has closed a connection without a request.
func over(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); os.IsTimeout(err) {
		t.Error("an idle connection is still open, want it closed at the limit")
	}
}

// 1,011 idle connections used all descriptors of a stager that may have 1,024: checkpoints were no
// longer saved, and "stager drain" got no response.
func TestServerClosesIdleConnectionsAndKeepsReaders(t *testing.T) {
	hold := make(chan struct{})
	reg := prometheus.NewRegistry()
	h := crowded(t, 2, Limits{Name: "socket", Readers: 4, Spare: 4, Metrics: NewMetrics(reg)}, func(c *window.Config) { c.Fetcher = lastHeld{hold} })
	holder, waiter := h.dial(), h.dial()
	l := holder.lease("reader=a", bound)
	waiter.send("POST", "/v1/inputs/train/lease?reader=b&wait=10m", bound)
	h.waitIdle(func() bool { return h.win.Status().Waiting > 0 })

	var idle []net.Conn
	for range 300 {
		idle = append(idle, h.dial().conn)
	}
	h.dial().want(200, "GET", "/healthz")
	for _, conn := range idle[:290] {
		over(t, conn)
	}
	h.waitIdle(func() bool { return h.conns() <= 8 })
	holder.want(204, "POST", "/v1/leases/"+l.Lease+"/ack")
	close(hold)
	if got := waiter.answer(); got.Pos != 1 {
		t.Errorf("the reader that waited got %+v, want the shard at position 1", got)
	}
	if got := metrictest.CounterSum(t, reg, "stager_api_refused_total"); got < 290 {
		t.Errorf("%v connections are counted as closed, want 290 and more", got)
	}
}

// lastHeld fetches the item after the first only when allowed.
type lastHeld struct{ hold chan struct{} }

func (f lastHeld) Fetch(ctx context.Context, item int, in *disk.Incoming) (string, error) {
	if item == 0 {
		return fake{}.Fetch(ctx, item, in)
	}
	return fake(f).Fetch(ctx, item, in)
}

// If readers use every connection, one more reader is refused, but short requests are served.
func TestServerRefusesReadersBeyondItsLimit(t *testing.T) {
	h := crowded(t, 8, Limits{Readers: 3, Spare: 2})
	var readers []*client
	for i := range 3 {
		c := h.dial()
		c.lease(fmt.Sprintf("reader=r%d", i), bound)
		readers = append(readers, c)
	}
	for _, call := range []string{"POST /v1/inputs/train/lease?reader=d", "GET /v1/inputs/train/next?reader=d"} {
		method, path, _ := strings.Cut(call, " ")
		resp, body := h.dial().want(503, method, path)
		if resp.Header.Get("Retry-After") == "" || !strings.Contains(body, "too many readers: 3 hold shards") {
			t.Errorf("%s: got %v %s, want how many readers there are, and when to ask again", call, resp.Header, body)
		}
	}
	h.dial().want(202, "POST", "/v1/drain")
	readers[0].lease("reader=r0", bound) // a reader with one lease may get another
	readers[1].conn.Close()
	h.waitIdle(func() bool { return h.state(window.Leased) == 3 })
	h.dial().lease("reader=e", bound)
}

// If all other connections are in use, a new connection is refused with an error message.
func TestServerRejectsWhenAllConnectionsAreInUse(t *testing.T) {
	h := crowded(t, 8, Limits{Readers: 2, Spare: 1})
	release := make(chan struct{})
	h.api.Drain = func(time.Duration) { <-release }
	defer close(release)
	for i := range 2 {
		h.dial().lease(fmt.Sprintf("reader=r%d", i), bound)
	}
	h.dial().send("POST", "/v1/drain")
	h.waitIdle(func() bool { return h.server.inUse() == 3 })
	c := h.dial() // it gets a response before its request
	resp := c.head()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 503 || !resp.Close || !strings.Contains(string(body), "too many connections") {
		t.Errorf("got %s close=%v %s (%v), want 503, too many connections, and the end of this one", resp.Status, resp.Close, body, err)
	}
}

// inUse counts the connections that cannot be closed in favour of another.
func (s *Server) inUse() (n int) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	for t := range s.table.open {
		if t.use.serving || t.use.leases > 0 {
			n++
		}
	}
	return n
}

// A client of next that does not read its shard keeps its connection only while no other client
// needs it.
func TestServerClosesAStalledStreamAtItsLimit(t *testing.T) {
	h := crowded(t, 2, Limits{Readers: 1, Spare: 1, Stall: time.Nanosecond}, func(c *window.Config) {
		list := c.Items.(window.List)
		for i := range list {
			list[i].Size = 8 << 20 // more than the kernel's buffers hold
		}
	})
	stalled := h.dial()
	stalled.send("GET", next)
	stalled.peek()
	for range 2 {
		h.dial()
	}
	h.waitIdle(func() bool { return h.state(window.Leased) == 0 })
	if _, err := io.Copy(io.Discard, stalled.head().Body); err == nil {
		t.Error("the stalled stream came whole, want its end")
	}
}

// An idle connection is closed after a while, unless it holds a lease.
func TestServerClosesConnectionsThatAreIdleForLong(t *testing.T) {
	h := crowded(t, 2, Limits{Idle: time.Hour})
	idle, holder := h.dial(), h.dial()
	idle.want(200, "GET", "/healthz")
	l := holder.lease("reader=a", bound)
	h.waitIdle(func() bool { return h.server.inUse() == 1 && h.server.idleOnes() == 2 })
	h.server.table.sweep(h.server.table.now() + int64(time.Hour) - int64(time.Minute))
	idle.want(200, "GET", "/healthz")
	h.waitIdle(func() bool { return h.server.idleOnes() == 2 })
	h.server.table.sweep(h.server.table.now() + int64(2*time.Hour))
	over(t, idle.conn)
	holder.want(204, "POST", "/v1/leases/"+l.Lease+"/ack")
}

// idleOnes counts the connections between two requests.
func (s *Server) idleOnes() (n int) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	for t := range s.table.open {
		if !t.use.serving {
			n++
		}
	}
	return n
}

// endless is a body without end, or one that never arrives.
func endless(conn net.Conn, chunk string) {
	for {
		if _, err := io.WriteString(conn, chunk); err != nil {
			return
		}
	}
}

// Each of these occupied a connection and a handler for as long as the client liked.
func TestServerEndsStalledRequests(t *testing.T) {
	t.Run("silent", func(t *testing.T) { endsRequests(t, Limits{Body: time.Second / 5}, false) })
	// These are refused for their size, however slow the machine is.
	t.Run("without end", func(t *testing.T) { endsRequests(t, Limits{Body: time.Minute}, true) })
}

func endsRequests(t *testing.T, limits Limits, withoutEnd bool) {
	h := crowded(t, 1, limits)
	const chunked = "Transfer-Encoding: chunked\r\n\r\n"
	piece := "1000\r\n" + strings.Repeat("x", 4096) + "\r\n"
	for name, tt := range map[string]struct {
		head string
		more string // repeated endlessly; "" is silence
		want int
	}{
		"header of a megabyte":    {"GET /healthz HTTP/1.1\r\nHost: s\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", "", 431},
		"header without end":      {"GET /healthz HTTP/1.1\r\nHost: s\r\n", "X: y\r\n", 431},
		"path without end":        {"GET /", "x", 431},
		"lease, body stops":       {"POST /v1/inputs/train/lease HTTP/1.1\r\nHost: s\r\nContent-Length: 10\r\n\r\nabc", "", 408},
		"lease, body without end": {"POST /v1/inputs/train/lease HTTP/1.1\r\nHost: s\r\n" + chunked, piece, 413},
		"lease, form stops":       {"POST /v1/inputs/train/lease HTTP/1.1\r\nHost: s\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 10\r\n\r\nabc", "", 408},
		"commit, body stops":      {"POST /v1/outputs/o/commit HTTP/1.1\r\nHost: s\r\nContent-Length: 10\r\n\r\n{\"pa", "", 404},
		"cursor, body stops":      {"PUT /v1/inputs/train/cursor HTTP/1.1\r\nHost: s\r\nContent-Length: 10\r\n\r\n{", "", 408},
		"cursor, without end":     {"PUT /v1/inputs/train/cursor HTTP/1.1\r\nHost: s\r\n" + chunked, piece, 413},
		"ack, body without end":   {"POST /v1/leases/x/ack HTTP/1.1\r\nHost: s\r\n" + chunked, piece, 410},
		"no HTTP":                 {"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", "", 400},
		"two lengths":             {"POST /v1/drain HTTP/1.1\r\nHost: s\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "", 400},
		"no Host":                 {"GET /healthz HTTP/1.1\r\n\r\n", "", 400},
	} {
		if (tt.more != "") != withoutEnd {
			continue
		}
		t.Run(name, func(t *testing.T) {
			c := h.dial()
			if err := c.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			var writer sync.WaitGroup
			defer writer.Wait()
			defer c.conn.Close()
			writer.Go(func() {
				if _, err := io.WriteString(c.conn, tt.head); err == nil && tt.more != "" {
					endless(c.conn, tt.more)
				}
			})
			resp, err := http.ReadResponse(c.in, nil)
			if err != nil || resp.StatusCode != tt.want {
				t.Fatalf("got %v (%v), want %d", resp, err, tt.want)
			}
			// Nothing more of the connection is read.
			if _, err := io.Copy(io.Discard, c.in); os.IsTimeout(err) {
				t.Errorf("got no end of the connection: %v", err)
			}
		})
	}
	if _, err := net.Dial("unix", h.socket); err != nil {
		t.Errorf("the server is gone: %v", err)
	}
}

// A web page in a browser can give the port a host name of its own by DNS, and would then read all
// responses. The Host header has that name.
func TestPortRefusesForeignNames(t *testing.T) {
	h := newHouse(t, 1, 10)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(h.api.Guarded("t", "stager.example"), Limits{}, nil)
	go server.Serve(l) //nolint:errcheck // stopped below
	defer server.Close()
	get := func(request string) (*http.Response, string) {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(body)
	}
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST.:9090": 200, "127.0.0.1:9090": 200, "[::1]:9090": 200, "::1": 200, "10.0.0.5": 200, "[fe80::1%25eth0]": 200,
		"stager.example": 200, "Stager.Example:80": 200, own: 200,
		"evil.example": 421, "evil.example:9090": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example": 421, "evil.example:localhost": 421, "1.2.3": 421,
	} {
		resp, body := get("GET /healthz HTTP/1.1\r\nHost: " + host + "\r\n\r\n")
		if resp.StatusCode != want || want == 421 && !strings.Contains(body, "unknown Host") {
			t.Errorf("Host %s: got %d %s, want %d", host, resp.StatusCode, body, want)
		}
	}
	if resp, _ := get("GET /healthz HTTP/1.0\r\n\r\n"); resp.StatusCode != 200 {
		t.Errorf("without a Host: got %d, want 200", resp.StatusCode)
	}
}

// Any bytes lead to an HTTP response or the end of the connection.
func FuzzServer(f *testing.F) {
	for _, text := range []string{
		"GET /v1/status HTTP/1.1\r\nHost: s\r\n\r\n", "POST /v1/inputs/train/lease?wait=1ms HTTP/1.1\r\nHost: s\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"PUT /v1/inputs/train/cursor HTTP/1.1\r\nHost: s\r\nContent-Length: 2\r\n\r\n{}", "POST /v1/outputs/o/commit HTTP/1.1\r\nHost: s\r\nExpect: 100-continue\r\nContent-Length: 99\r\n\r\n",
		"GET /v1/inputs/train/next?reader=%00 HTTP/1.1\r\nHost: s\r\nStager-Bind: connection\r\n\r\n", "\x00\xff", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	h := newHouse(f, 1, 10)
	f.Fuzz(func(t *testing.T, request []byte) {
		conn, err := net.Dial("unix", h.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(request)            // the server may already have refused
		_ = conn.(*net.UnixConn).CloseWrite() // likewise
		answer, err := io.ReadAll(conn)
		if os.IsTimeout(err) || len(answer) > 0 && !strings.HasPrefix(string(answer), "HTTP/1.1 ") {
			t.Errorf("got %.200q (%v), want an answer or the end", answer, err)
		}
	})
}

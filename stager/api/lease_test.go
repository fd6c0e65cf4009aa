package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stager-dev/stager/window"
)

func TestLeaseByID(t *testing.T) {
	h := newHouse(t, 3, 10)
	c := h.dial()
	one := c.lease("reader=r0")
	if one.Pos != 0 || one.Attempt != 1 || one.Size != 10 || one.End || one.Lease == "" || !strings.HasPrefix(one.Path, h.cfg.Dir) {
		t.Errorf("got %+v", one)
	}
	c.want(204, "POST", "/v1/leases/"+one.Lease+"/renew")
	c.want(204, "POST", "/v1/leases/"+one.Lease+"/nack?reason=torn")
	if again := c.lease("reader=r0"); again.Pos != 0 || again.Attempt != 2 {
		t.Errorf("after a nack got %+v, want position 0 for the second time", again)
	} else {
		c.want(204, "POST", "/v1/leases/"+again.Lease+"/ack")
		c.want(204, "POST", "/v1/leases/"+again.Lease+"/ack")
	}
	c.want(410, "POST", "/v1/leases/"+one.Lease+"/ack")
	c.want(410, "POST", "/v1/leases/never/renew")
	c.want(404, "POST", "/v1/leases/never/eat")
}

// A reader that dies in the middle of a shard does not count against the shard, however often that
// happens.
func TestLeaseIsReturned(t *testing.T) {
	h := newHouse(t, 1, 10)
	c := h.dial()
	for attempt := range 5 {
		l := c.lease("reader=r0")
		if l.Pos != 0 || l.Attempt != attempt+1 {
			t.Fatalf("got %+v, want position 0 for the %d. time", l, attempt+1)
		}
		c.want(204, "POST", "/v1/leases/"+l.Lease+"/return")
		c.want(410, "POST", "/v1/leases/"+l.Lease+"/return")
	}
}

// A worker of the first epoch that asks for a shard after others have read all gets the end, and
// nothing of the second epoch.
func TestLeaseReportsEpochToLateReader(t *testing.T) {
	h := newHouse(t, 1, 10, func(c *window.Config) { c.Epochs = 3 })
	c := h.dial()
	want := func(query string, want LeaseResponse) {
		t.Helper()
		got := c.lease(query)
		if got.End != want.End || got.Epoch != want.Epoch {
			t.Errorf("lease?%s gives %+v, want %+v", query, got, want)
		}
		if !got.End {
			c.want(204, "POST", "/v1/leases/"+got.Lease+"/ack")
		}
	}
	want("reader=a&epoch=0", LeaseResponse{Epoch: 0})
	for range 2 { // the response might have been lost
		want("reader=late&epoch=0", LeaseResponse{End: true, Epoch: 0})
	}
	want("reader=early&epoch=2", LeaseResponse{Epoch: 1})
	want("reader=early&epoch=2", LeaseResponse{Epoch: 2})
	want("reader=early&epoch=2", LeaseResponse{End: true, Epoch: 2})
	want("reader=a&epoch=1", LeaseResponse{End: true, Epoch: 1})
}

// A loader reads batches from its workers in turn. If a worker waited at the end of the epoch for a
// shard that another holds, the loader would wait for it, and the other for the loader. So it gets
// the end of its part, at once or as soon as possible.
func TestEndEarlyBeforeOthersAreDone(t *testing.T) {
	h := newHouse(t, 2, 10, func(c *window.Config) { c.Epochs = 2 })
	one, two, three := h.dial(), h.dial(), h.dial()
	held := one.lease("reader=one&epoch=0&end=early")
	last := two.lease("reader=two&epoch=0&end=early")
	for range 2 { // any number of times
		if got := three.lease("reader=three&epoch=0&end=early"); !got.End || !got.Early || got.Epoch != 0 {
			t.Errorf("while others hold the rest got %+v, want an early end of epoch 0", got)
		}
	}
	resp, _ := three.want(204, "POST", "/v1/inputs/train/lease?reader=three&epoch=1&end=early&wait=0s")
	if got := resp.Header.Get("Stager-Wait-Cause"); got != string(window.CauseReaders) {
		t.Errorf("a reader of the next epoch waits for %q, want readers", got)
	}
	// A returned shard goes to the next reader that asks.
	two.want(204, "POST", "/v1/leases/"+last.Lease+"/return")
	if again := three.lease("reader=three&epoch=1&end=early"); again.End || again.Epoch != 0 || again.Attempt != 2 {
		t.Errorf("got %+v, want what was given back", again)
	} else {
		three.want(204, "POST", "/v1/leases/"+again.Lease+"/ack")
	}
	one.want(204, "POST", "/v1/leases/"+held.Lease+"/ack")
	if got := three.lease("reader=three&epoch=1&end=early"); got.End || got.Epoch != 1 {
		t.Errorf("got %+v, want a shard of epoch 1", got)
	}
}

// A reader that waits for a shard that goes to another reader then gets the end.
func TestEndIsReportedToWaitingReaders(t *testing.T) {
	hold := make(chan struct{})
	h := newHouse(t, 1, 10, func(c *window.Config) { c.Fetcher = fake{hold} })
	var waiters []*client
	for i := range 2 {
		c := h.dial()
		c.send("POST", fmt.Sprintf("/v1/inputs/train/lease?reader=r%d&end=early", i))
		waiters = append(waiters, c)
	}
	close(hold)
	ends := 0
	for _, c := range waiters {
		if c.answer().End {
			ends++
		}
	}
	if ends != 1 {
		t.Errorf("%d of two readers of one shard were told of the end, want 1", ends)
	}
}

func TestLeaseByPathAndTheEnd(t *testing.T) {
	h := newHouse(t, 2, 10)
	c := h.dial()
	path := func(l LeaseResponse) string { return "path=" + url.QueryEscape(l.Path) }
	one := c.lease("")
	c.want(204, "POST", "/v1/nack?"+path(one))
	c.want(410, "POST", "/v1/nack?"+path(one))
	c.want(410, "POST", "/v1/ack?"+path(one))
	one, two := c.lease(""), c.lease("")
	resp, _ := c.want(204, "POST", "/v1/inputs/train/lease?wait=0s")
	if got := resp.Header.Get("Stager-Wait-Cause"); got != string(window.CauseReaders) {
		t.Errorf("waiting for %q, want readers", got)
	}
	c.want(204, "POST", "/v1/ack?"+path(one))
	c.want(204, "POST", "/v1/ack?"+path(one)) // the response might have been lost
	c.want(410, "POST", "/v1/ack?path=/etc/passwd")
	c.want(410, "POST", "/v1/ack")
	c.want(204, "POST", "/v1/ack?"+path(two))
	if end := c.lease("reader=x"); !end.End || end.Epoch != 0 || end.Lease != "" {
		t.Errorf("got %+v, want the end of epoch 0", end)
	}
}

func TestWaitCauseIsTheStore(t *testing.T) {
	hold := make(chan struct{})
	h := newHouse(t, 1, 10, func(c *window.Config) { c.Fetcher = fake{hold} })
	c := h.dial()
	resp, body := c.want(204, "POST", "/v1/inputs/train/lease?wait=1ms")
	if got := resp.Header.Get("Stager-Wait-Cause"); got != "backend" || body != "" {
		t.Errorf("waiting for %q with body %q, want backend", got, body)
	}
	resp, _ = c.want(503, "GET", "/readyz")
	if resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("an error is %s", resp.Header.Get("Content-Type"))
	}
	c.send("POST", "/v1/inputs/train/lease?wait=1m")
	close(hold)
	if resp := c.head(); resp.StatusCode != 200 {
		t.Errorf("got %s, want the shard that came meanwhile", resp.Status)
	}
}

// A bound lease is free as soon as its connection is closed: another waiting reader gets the shard,
// without any polling.
func TestBoundLeaseEndsWithItsConnection(t *testing.T) {
	h := newHouse(t, 2, 10)
	a, b := h.dial(), h.dial()
	other := h.dial().lease("reader=other", bound)
	one := a.lease("reader=a&wait=1m", bound)
	b.send("POST", "/v1/inputs/train/lease?reader=b&wait=1m", bound)
	began := time.Now()
	a.conn.Close()
	resp := b.head()
	took := time.Since(began)
	if resp.StatusCode != 200 {
		t.Fatalf("got %s", resp.Status)
	}
	if took > 30*time.Second { // half of the wait; a busy machine needs a while
		t.Errorf("the lease was free after %v", took)
	}
	t.Logf("free and given to another after %v", took)
	a = h.dial()
	a.want(410, "POST", "/v1/leases/"+one.Lease+"/ack")
	a.want(204, "POST", "/v1/leases/"+other.Lease+"/ack")
}

// gone is a response writer whose client is gone.
type gone struct{ *httptest.ResponseRecorder }

func (gone) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestLeaseIsReturnedIfResponseIsNotRead(t *testing.T) {
	h := newHouse(t, 1, 10)
	for range 5 { // more often than readers may refuse a shard
		r := httptest.NewRequest("POST", "/v1/inputs/train/lease?reader=a&wait=1m", http.NoBody)
		h.api.Handler().ServeHTTP(gone{httptest.NewRecorder()}, r)
	}
	if l := h.dial().lease("reader=b"); l.Attempt != 1 {
		t.Errorf("got %+v, want a shard that nobody had", l)
	}
}

func TestUnboundLeaseOutlivesItsConnection(t *testing.T) {
	h := newHouse(t, 1, 10)
	a := h.dial()
	one := a.lease("")
	a.conn.Close()
	h.dial().want(204, "POST", "/v1/leases/"+one.Lease+"/ack")
}

// A restart of the server is not the end of the reader: it continues with its lease.
func TestBoundLeaseOutlivesTheServer(t *testing.T) {
	h := newHouse(t, 2, 10)
	a := h.dial()
	one := a.lease("reader=a", bound)
	if err := h.server.Close(); err != nil {
		t.Fatal(err)
	}
	h.waitIdle(func() bool { return h.conns() == 0 })
	if h.state(window.Leased) != 1 {
		t.Error("the lease ended with the server")
	}
	h.close()
	if _, err := a.in.ReadByte(); err == nil {
		t.Fatal("the connection outlives its server")
	}
	h.open()
	b := h.dial()
	if two := b.lease("reader=b&wait=1m", bound); two.Pos != 1 {
		t.Errorf("another reader got %+v, want position 1", two)
	}
	a = h.dial()
	a.want(204, "POST", "/v1/leases/"+one.Lease+"/renew", bound)
	a.want(204, "POST", "/v1/leases/"+one.Lease+"/ack")
}

// A lease that is bound to another connection does not depend on the first any more.
func TestLeaseMovesToAnotherConnection(t *testing.T) {
	h := newHouse(t, 1, 10)
	a, b, c := h.dial(), h.dial(), h.dial()
	one := a.lease("reader=a", bound)
	b.want(204, "POST", "/v1/leases/"+one.Lease+"/renew", bound)
	c.send("POST", "/v1/inputs/train/lease?reader=c&wait=1m")
	h.waitIdle(func() bool { return h.win.Status().Waiting == 1 }) // so the server has all three connections
	a.conn.Close()
	h.waitIdle(func() bool { return h.conns() == 2 })
	if h.state(window.Leased) != 1 {
		t.Fatal("the lease ended with the connection that it had left")
	}
	b.conn.Close()
	if resp := c.head(); resp.StatusCode != 200 {
		t.Errorf("got %s, want the shard of the reader that is gone", resp.Status)
	}
}

func TestEndedLeasesAreForgotten(t *testing.T) {
	h := newHouse(t, 20, 10)
	a, b := h.dial(), h.dial()
	for i := range 20 {
		one := a.lease("", bound)
		switch i % 3 {
		case 0:
			a.want(204, "POST", "/v1/leases/"+one.Lease+"/ack")
		case 1:
			b.want(204, "POST", "/v1/leases/"+one.Lease+"/ack")
		case 2:
			b.want(204, "POST", "/v1/ack?path="+url.QueryEscape(one.Path))
		}
	}
	if n := len(h.api.bound.of); n != 0 {
		t.Errorf("%d bindings are left", n)
	}
}

// A reader that goes away while it waits gets no shard, even if its request has an unread body, or
// another request follows.
func TestDisconnectedReaderGetsNothing(t *testing.T) {
	for name, request := range map[string]string{
		"waiting":   "POST /v1/inputs/train/lease?reader=a&wait=1h HTTP/1.1\r\nHost: s\r\n\r\n",
		"bound":     "POST /v1/inputs/train/lease?reader=a&wait=1h HTTP/1.1\r\nHost: s\r\nStager-Bind: connection\r\n\r\n",
		"body":      "POST /v1/inputs/train/lease?reader=a&wait=1h HTTP/1.1\r\nHost: s\r\nContent-Length: 5\r\n\r\nhello",
		"pipelined": strings.Repeat("POST /v1/inputs/train/lease?reader=a&wait=1h HTTP/1.1\r\nHost: s\r\n\r\n", 2),
		"next":      "GET /v1/inputs/train/next?reader=a HTTP/1.1\r\nHost: s\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			hold := make(chan struct{})
			h := newHouse(t, 1, 10, func(c *window.Config) { c.Fetcher = fake{hold} })
			a := h.dial()
			if _, err := a.conn.Write([]byte(request)); err != nil {
				t.Fatal(err)
			}
			h.waitIdle(func() bool { return len(h.win.Status().Readers) == 1 })
			a.conn.Close()
			if name != "pipelined" { // there only the response shows that the client is gone
				h.waitIdle(func() bool { return h.conns() == 0 })
			}
			close(hold)
			if got := h.dial().lease("reader=b&wait=1m"); got.Attempt != 1 {
				t.Errorf("got %+v, want a shard that nobody had", got)
			}
		})
	}
}

func TestDrainedWindowMakesReadersWait(t *testing.T) {
	h := newHouse(t, 3, 10)
	c := h.dial()
	one := c.lease("")
	h.end()
	began := time.Now()
	resp, _ := c.want(204, "POST", "/v1/inputs/train/lease?wait=20ms")
	if got := resp.Header.Get("Stager-Wait-Cause"); got != "end" || time.Since(began) < 20*time.Millisecond {
		t.Errorf("waited %v for %q, want 20ms for the end", time.Since(began), got)
	}
	c.want(204, "POST", "/v1/leases/"+one.Lease+"/ack")
	c.send("GET", "/v1/inputs/train/next") // waits until the server stops
}

func TestFailedInputs(t *testing.T) {
	h := newHouse(t, 1, 10, func(c *window.Config) { c.Release = window.ReleaseUnlink })
	c := h.dial()
	c.want(409, "POST", "/v1/inputs/train/lease")
	c.want(409, "GET", "/v1/inputs/train/next")
	for _, call := range []string{"POST %s/lease?wait=0s", "GET %s/next", "GET %s"} {
		method, path, _ := strings.Cut(call, " ")
		for input, code := range map[string]int{"nope": 404, "soon": 503, "broken": 500, "%00": 404} {
			if input == "soon" && path == "%s/next" {
				continue // still waiting
			}
			_, body := c.want(code, method, fmt.Sprintf(path, "/v1/inputs/"+input))
			if !strings.HasPrefix(body, `{"error":"input `) {
				t.Errorf("%s %s: %s", call, input, body)
			}
		}
	}
	h.more.Store(true)
	resp, _ := c.want(503, "POST", "/v1/leases/x/ack")
	if resp.Header.Get("Retry-After") == "" {
		t.Error("503 does not say when to try again")
	}
	c.want(503, "POST", "/v1/ack?path=/x")
}

func TestHostileRequests(t *testing.T) {
	h := newHouse(t, 1, 10)
	for path, code := range map[string]int{
		"lease?wait=soon": 400, "lease?wait=-1s": 400, "lease?wait=30": 400, "lease?wait=99999999999h": 400,
		"lease?epoch=-1": 400, "lease?end=soon": 400, "lease?epoch=one": 400, "lease?epoch=7": 400,
		"lease?reader=a%0Ab": 400, "lease?reader=%1b[2J": 400, "lease?reader=../../etc": 400, "lease?reader=(elsewhere)": 400,
		"lease?reader=" + strings.Repeat("x", longestReader+1): 400, "lease?reader=%ff": 400,
	} {
		h.dial().want(code, "POST", "/v1/inputs/train/"+path)
	}
	h.dial().want(400, "GET", "/v1/inputs/train/next?reader=a+b")
	h.dial().want(405, "HEAD", "/v1/inputs/train/next")
	h.dial().want(405, "GET", "/v1/inputs/train/lease")
	for header, code := range map[string]int{bound + "\r\nVia: 1.1 proxy": 400, bound + "\r\nX-Forwarded-For: 10.0.0.1": 400, "Stager-Bind: forever": 400} {
		h.dial().want(code, "POST", "/v1/inputs/train/lease", header)
		h.dial().want(code, "POST", "/v1/leases/x/renew", header)
	}
	if h.state(window.Leased) != 0 {
		t.Error("something was handed out")
	}
	// An endless body is cut off, whatever it contains, and the lease is not affected.
	c := h.dial()
	c.send("POST", "/v1/inputs/train/lease", "Content-Type: multipart/form-data; boundary=b", "Content-Length: 1000000000000")
	go func() {
		for chunk := make([]byte, 1<<16); ; {
			if _, err := c.conn.Write(chunk); err != nil {
				return
			}
		}
	}()
	c.head()
}

// Each shard is delivered to one reader once, however many ask concurrently.
func TestReadersConcurrently(t *testing.T) {
	const shards, readers = 200, 8
	h := newHouse(t, shards, 100, func(c *window.Config) { c.Size = 2000 })
	var mu sync.Mutex
	got := map[int]int{}
	var wg sync.WaitGroup
	for i := range readers {
		c := h.dial()
		wg.Go(func() {
			for {
				l := c.lease(fmt.Sprintf("reader=r%d&wait=1m", i), bound)
				if l.End {
					return
				}
				mu.Lock()
				got[l.Pos]++
				mu.Unlock()
				c.want(204, "POST", "/v1/leases/"+l.Lease+"/ack")
				c.want(200, "GET", "/v1/inputs/train")
			}
		})
	}
	wg.Wait()
	if len(got) != shards {
		t.Errorf("%d shards were delivered, want %d", len(got), shards)
	}
	for pos, n := range got {
		if n != 1 {
			t.Errorf("position %d was delivered %d times", pos, n)
		}
	}
}

// Until the source was listed, waiting requests got 503 at once: curl -f of the README exited with
// 22, and a loader raised an exception.
func TestRequestsWaitForTheListing(t *testing.T) {
	h := newHouse(t, 2, 10)
	h.listing.Store(true)
	one, two := h.dial(), h.dial()
	one.send("POST", "/v1/inputs/train/lease?wait=1m&reader=a")
	two.send("GET", "/v1/inputs/train/next?reader=b")
	h.waitIdle(func() bool { return h.looks.Load() > 2 })
	resp, _ := h.dial().want(204, "POST", "/v1/inputs/train/lease?wait=1ms")
	if got := resp.Header.Get("Stager-Wait-Cause"); got != "backend" {
		t.Errorf("after its time a lease waits for %q, want backend", got)
	}
	h.dial().want(503, "POST", "/v1/inputs/train/lease?wait=0s")
	h.listing.Store(false)
	if got := one.answer(); got.Lease == "" {
		t.Errorf("the lease is %+v, want a shard", got)
	}
	if got := two.head(); got.StatusCode != 200 || got.ContentLength != 10 {
		t.Errorf("next is %s with %d bytes, want 200 with 10", got.Status, got.ContentLength)
	}
}

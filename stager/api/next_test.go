package api

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/window"
)

// TestMain also runs as a reader that will be killed: it reads the beginning of a shard, reports
// this, and waits to be killed.
func TestMain(m *testing.M) {
	if socket := os.Getenv("STATUS_TEST_READER"); socket != "" {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, "GET /v1/inputs/train/next?reader=victim HTTP/1.1\r\nHost: s\r\n\r\n")
		_, _ = io.ReadFull(conn, make([]byte, 1000))
		_, _ = os.Stdout.WriteString("reading\n")
		select {}
	}
	os.Exit(m.Run())
}

const next = "/v1/inputs/train/next?reader=a"

// body reads a whole shard of the stream.
func (c *client) body(path string) (*http.Response, string) {
	c.t.Helper()
	return c.want(200, "GET", path)
}

func TestNextAcknowledgesThePreviousShard(t *testing.T) {
	const size = 1 << 20
	h := newHouse(t, 3, size)
	for i := range 3 {
		c := h.dial() // like curl: a new connection for each shard
		resp, body := c.body(next)
		if want := strings.Repeat(string(rune('a'+i)), size); body != want {
			t.Errorf("shard %d has %d bytes, want %d of %c", i, len(body), size, want[0])
		}
		if got := resp.Header.Get("Stager-Shard"); got != h.cfg.Items.(window.List)[i].Name {
			t.Errorf("got %s, want %s", got, h.cfg.Items.(window.List)[i].Name)
		}
		c.conn.Close()
	}
	resp, body := h.dial().body(next)
	if resp.Header.Get("Stager-End") != "0" {
		t.Errorf("got %v, want the end of epoch 0", resp.Header)
	}
	if _, err := tar.NewReader(strings.NewReader(body)).Next(); !errors.Is(err, io.EOF) {
		t.Errorf("as a tar the end is %v, want io.EOF", err)
	}
	if s := h.win.Status(); s.Acknowledged != 3 || s.Redelivered != 0 || len(h.win.Status().Readers) != 1 {
		t.Errorf("got %+v", s)
	}
}

// A shard that a reader did not read to the last byte is redelivered, and its next request does
// not acknowledge it.
func TestNextIsRedeliveredIfNotReceived(t *testing.T) {
	for name, take := range map[string]int{"nothing": 0, "a little": 1000, "all but a little": -100} {
		for _, size := range []int{3000, 4 << 20} { // fits the socket's queue, and does not fit
			t.Run(name, func(t *testing.T) {
				h := newHouse(t, 1, int64(size))
				c := h.dial()
				c.send("GET", next)
				if take != 0 {
					if _, err := io.CopyN(io.Discard, c.head().Body, int64((take+size)%size)); err != nil {
						t.Fatal(err)
					}
				} else {
					c.peek()
				}
				c.conn.Close()
				c = h.dial()
				resp, _ := c.body(next)
				if got := resp.Header.Get("Stager-Attempt"); got != "2" {
					t.Errorf("attempt %s, want 2", got)
				}
				if h.win.Status().Acknowledged != 0 {
					t.Error("it was acknowledged")
				}
				if resp, _ := c.body(next); resp.Header.Get("Stager-End") == "" {
					t.Error("taken whole it was not acknowledged")
				}
			})
		}
	}
}

func TestNextOfAKilledReaderIsRedelivered(t *testing.T) {
	h := newHouse(t, 1, 8<<20)
	victim := exec.Command(os.Args[0])
	victim.Env = append(os.Environ(), "STATUS_TEST_READER="+h.socket)
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("reading\n"))); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait()
	resp, _ := h.dial().body("/v1/inputs/train/next?reader=victim")
	if got := resp.Header.Get("Stager-Attempt"); got != "2" || h.win.Status().Acknowledged != 0 {
		t.Errorf("attempt %s after a kill, %d acknowledged; want 2 and 0", got, h.win.Status().Acknowledged)
	}
	t.Logf("delivered again %v after the kill", time.Since(began))
}

// A slow reader that reads the last byte and exits has received the shard.
func TestNextToSlowReaders(t *testing.T) {
	const shards = 30
	h := newHouse(t, shards, 300_000)
	for i := range shards {
		c := h.dial()
		c.send("GET", next)
		resp := c.head()
		time.Sleep(time.Duration(i%3) * time.Millisecond) // by now the server waits, with growing intervals
		if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != 300_000 {
			t.Fatalf("took %d bytes: %v", n, err)
		}
		c.conn.Close()
	}
	if resp, _ := h.dial().body(next); resp.Header.Get("Stager-End") == "" {
		t.Errorf("got %v, want the end", resp.Header)
	}
	if s := h.win.Status(); s.Redelivered != 0 || s.Acknowledged != shards {
		t.Errorf("%d redelivered, %d acknowledged; want 0 and %d", s.Redelivered, s.Acknowledged, shards)
	}
}

// A reader may close its sending side after its request and continue to read.
func TestNextToHalfClosedReader(t *testing.T) {
	const size = 4 << 20
	h := newHouse(t, 1, size)
	h.waitIdle(h.win.Ready)
	c := h.dial()
	c.send("GET", next)
	resp := c.head()
	if err := c.conn.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Millisecond)
	if body, err := io.ReadAll(resp.Body); err != nil || len(body) != size {
		t.Fatalf("got %d bytes: %v", len(body), err)
	}
	if resp, _ := h.dial().body(next); resp.Header.Get("Stager-End") == "" {
		t.Errorf("got %v, want the end", resp.Header)
	}
}

func TestNextPipelined(t *testing.T) {
	h := newHouse(t, 3, 100_000)
	c := h.dial()
	for range 4 {
		c.send("GET", next)
	}
	for i := range 4 {
		resp := c.head()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if want := bytes.Repeat([]byte{byte('a' + i)}, 100_000); i < 3 && !bytes.Equal(body, want) {
			t.Errorf("answer %d is not shard %d", i, i)
		}
	}
	if s := h.win.Status(); s.Acknowledged != 3 || s.Redelivered != 0 {
		t.Errorf("got %+v", s)
	}
}

func TestNextSerializesStreamsOfOneReader(t *testing.T) {
	h := newHouse(t, 2, 4<<20)
	a, b := h.dial(), h.dial()
	a.send("GET", next)
	resp := a.head()
	h.setPatience(time.Millisecond)
	b.want(409, "GET", next)
	h.setPatience(time.Minute)
	b.want(200, "GET", "/v1/inputs/train/next?reader=b")
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != 4<<20 {
		t.Errorf("the first got %d bytes: %v", n, err)
	}
	b.send("GET", "/v1/inputs/train/next?reader=b") // waits until both are acknowledged
	if resp, _ := a.body(next); resp.Header.Get("Stager-End") == "" {
		t.Errorf("got %v, want the end", resp.Header)
	}
}

// While a shard is sent, its lease has no time-out; afterwards it has.
func TestNextRenewsLeaseOfASlowReader(t *testing.T) {
	h := newHouse(t, 1, 4<<20, func(c *window.Config) { c.LeaseTimeout = 50 * time.Millisecond })
	c := h.dial()
	c.send("GET", next)
	resp := c.head()
	time.Sleep(150 * time.Millisecond)
	if h.state(window.Leased) != 1 {
		t.Fatal("the lease ran out while the shard was sent")
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	h.waitIdle(func() bool { return h.state(window.Ready) == 1 })
	if resp, _ := h.dial().body("/v1/inputs/train/next?reader=b"); resp.Header.Get("Stager-Attempt") != "2" {
		t.Errorf("got %v", resp.Header)
	}
}

// A server that stops in the middle of a body loses nothing of its reader: after the restart the
// shard is redelivered, and the interruption does not count as a refusal.
func TestNextFinishesWhenTheServerStops(t *testing.T) {
	h := newHouse(t, 1, 4<<20, func(c *window.Config) { c.Reattach = time.Millisecond })
	for range 5 { // more often than readers may refuse a shard
		c := h.dial()
		c.send("GET", next)
		c.head()
		h.close()
		h.open()
	}
	if resp, _ := h.dial().body(next); resp.StatusCode != 200 {
		t.Errorf("got %v", resp.Header)
	}
}

// When the server stopped, a waiting reader got 200 with an empty body, which a pipe reads as an
// empty archive: a whole epoch without a sample, and no error.
func TestNextIsCutOffIfWaitingWhenTheServerStops(t *testing.T) {
	for name, path := range map[string]string{"a shard": next, "the listing": "/v1/inputs/soon/next?reader=a"} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, 1, 10)
			h.dial().lease("reader=other")
			c := h.dial()
			looks := h.looks.Load()
			c.send("GET", path)
			h.waitIdle(func() bool { return h.win.Status().Waiting == 1 || path != next && h.looks.Load() > looks })
			if err := h.server.Close(); err != nil {
				t.Fatal(err)
			}
			if resp, err := http.ReadResponse(c.in, nil); err == nil {
				t.Errorf("got %s with %d bytes, want a connection that is cut off", resp.Status, resp.ContentLength)
			}
		})
	}
}

func TestStreamsForgetSilentReaders(t *testing.T) {
	var s streams
	for i := range mostStreams + 10 {
		st, err := s.enter(t.Context(), string(rune(i)))
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			s.leave(st) // the first one stays
		}
	}
	if len(s.of) != mostStreams || s.of["\x00"] == nil {
		t.Errorf("%d streams are remembered, the busy one: %v; want %d", len(s.of), s.of["\x00"] != nil, mostStreams)
	}
}

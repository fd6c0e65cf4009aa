package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/stager/checkpoint"
	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

// fake is a window.Fetcher whose bytes depend on the item's number.
type fake struct{ hold chan struct{} } // fetches wait until it is closed, unless it is nil

func (f fake) Fetch(ctx context.Context, item int, in *disk.Incoming) (string, error) {
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	for _, r := range in.Missing() {
		if _, err := in.WriteAt(bytes.Repeat([]byte{byte('a' + item%26)}, int(r.Len)), r.Off); err != nil {
			return "", err
		}
	}
	return "", nil
}

// house is a window behind an API on a Unix socket.
type house struct {
	t       testing.TB
	cfg     window.Config
	win     *window.Window
	api     *API
	server  *Server
	socket  string
	limits  Limits // of the server
	alive   atomic.Int64
	listing atomic.Bool  // the input's source is being listed
	looks   atomic.Int64 // how often the window was looked up
	more    atomic.Bool  // more inputs will follow
	end     func()       // stops the window's Run, and waits until it has returned
}

// newHouse returns a house with n shards of size bytes in one epoch.
func newHouse(t testing.TB, n int, size int64, change ...func(*window.Config)) *house {
	t.Helper()
	cfg := window.Config{Input: "train", Dir: t.TempDir(), Size: 1 << 30, Epochs: 1, Manifest: "p", Fetcher: fake{}, Parallel: 1}
	var list window.List
	for i := range n {
		list = append(list, window.Item{Name: fmt.Sprintf("s%02d.tar", i), Size: size})
	}
	cfg.Items = list
	for _, c := range change {
		c(&cfg)
	}
	short, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	h := &house{t: t, cfg: cfg, socket: filepath.Join(short, "s.sock")}
	h.open()
	t.Cleanup(func() { noGoroutines(t) })
	t.Cleanup(h.close)
	return h
}

func (h *house) open() {
	h.t.Helper()
	win, err := window.New(h.cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	h.win = win
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = win.Run(ctx)
	}()
	h.end = func() { cancel(); <-ended }
	h.api = &API{
		Window: func(input string) (*window.Window, error) {
			h.looks.Add(1)
			switch input {
			case "train":
				if h.listing.Load() {
					return nil, ErrNotYet
				}
				return win, nil
			case "soon":
				return nil, ErrNotYet
			case "broken":
				return nil, errors.New("its object is gone")
			}
			return nil, ErrUnknown
		},
		Windows:  func() ([]*window.Window, bool) { return []*window.Window{win}, h.more.Load() },
		Uploader: func(string) (*checkpoint.Uploader, error) { return nil, ErrUnknown },
		Snapshot: func() Snapshot { return Snapshot{Plan: "p", Ready: win.Ready(), Waiting: "train"} },
		Drain:    func(time.Duration) {},
		Save:     func(context.Context, int) error { return nil },
		Restored: func(string, string, int) error { return nil },
		Metrics:  http.NotFoundHandler(),
		Log:      slog.New(slog.DiscardHandler),
	}
	h.setPatience(time.Minute) // no test of another subject must get 409 on a busy machine
	h.server = h.serve(h.api.Handler(), "unix", h.socket)
}

// setPatience sets how long a stream waits for the one before it.
func (h *house) setPatience(d time.Duration) {
	h.api.streams.mu.Lock()
	defer h.api.streams.mu.Unlock()
	h.api.streams.patience = d
}

func (h *house) serve(handler http.Handler, network, address string) *Server {
	h.t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		h.t.Fatal(err)
	}
	server := NewServer(handler, h.limits, nil)
	seen := server.http.ConnState
	server.http.ConnState = func(c net.Conn, state http.ConnState) {
		seen(c, state)
		switch state {
		case http.StateNew:
			h.alive.Add(1)
		case http.StateClosed:
			h.alive.Add(-1)
		}
	}
	go func() {
		if err := server.Serve(l); err != nil {
			h.t.Error(err)
		}
	}()
	return server
}

func (h *house) close() {
	h.end()
	if err := errors.Join(h.server.Close(), h.win.Close()); err != nil {
		h.t.Error(err)
	}
}

// noGoroutines waits until no goroutine of the package is left.
func noGoroutines(t testing.TB) {
	t.Helper()
	buf := make([]byte, 1<<20)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		all := string(buf[:runtime.Stack(buf, true)])
		left := ""
		for _, g := range strings.Split(all, "\n\n")[1:] {
			if strings.Contains(g, "stager/api.(") || strings.Contains(g, "window.(*Window).") {
				left = g
			}
		}
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("a goroutine is left:\n%s", left)
			return
		}
	}
}

// client is one connection with keep-alive.
type client struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
	last string // method
}

func (h *house) dial() *client {
	h.t.Helper()
	conn, err := net.Dial("unix", h.socket)
	if err != nil {
		h.t.Fatal(err)
	}
	c := &client{t: h.t, conn: conn, in: bufio.NewReaderSize(conn, 16)}
	h.t.Cleanup(func() { conn.Close() })
	return c
}

// peek waits for the first byte of a response, and does not consume it.
func (c *client) peek() {
	c.t.Helper()
	raw, err := c.conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		c.t.Fatal(err)
	}
	err = raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return !errors.Is(err, unix.EAGAIN)
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// send writes a request and reads no response. Headers have the form "Name: value".
func (c *client) send(method, path string, headers ...string) {
	c.t.Helper()
	c.last = method
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: s\r\n", method, path)
	for _, h := range headers {
		head += h + "\r\n"
	}
	if _, err := io.WriteString(c.conn, head+"\r\n"); err != nil {
		c.t.Fatal(err)
	}
}

// head reads the header of a response; its body can be read afterwards.
func (c *client) head() *http.Response {
	c.t.Helper()
	resp, err := http.ReadResponse(c.in, &http.Request{Method: c.last})
	if err != nil {
		c.t.Fatal(err)
	}
	return resp
}

// call sends a request and reads the whole response.
func (c *client) call(method, path string, headers ...string) (*http.Response, string) {
	c.t.Helper()
	c.send(method, path, headers...)
	resp := c.head()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp, string(body)
}

// want is call, and checks the status code.
func (c *client) want(code int, method, path string, headers ...string) (*http.Response, string) {
	c.t.Helper()
	resp, body := c.call(method, path, headers...)
	if resp.StatusCode != code {
		c.t.Fatalf("%s %s: got %s %s, want %d", method, path, resp.Status, body, code)
	}
	return resp, body
}

const bound = "Stager-Bind: connection"

// lease leases a shard.
func (c *client) lease(query string, headers ...string) LeaseResponse {
	c.t.Helper()
	_, body := c.want(200, "POST", "/v1/inputs/train/lease?"+query, headers...)
	return decoded(c.t, body)
}

// answer reads the response to a lease request that was sent.
func (c *client) answer() LeaseResponse {
	c.t.Helper()
	body, err := io.ReadAll(c.head().Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return decoded(c.t, string(body))
}

func decoded(t testing.TB, body string) (l LeaseResponse) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &l); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return l
}

// state returns the number of shards in a state.
func (h *house) state(s window.State) int { return h.win.Status().Items[s] }

// conns returns the number of the server's connections.
func (h *house) conns() int { return int(h.alive.Load()) }

// waitIdle waits until a condition is true.
func (h *house) waitIdle(so func() bool) {
	h.t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			h.t.Fatal("it never comes to be so")
		}
	}
}

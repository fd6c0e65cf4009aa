package status

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Leases bound to connections. A reader that is killed cannot say so, but the
// kernel closes its sockets: the server sees the end of the connection and gives
// back what was taken on it.

// tracked is a server's connection. It knows the leases bound to it, and whether
// the peer went away with bytes unread.
type tracked struct {
	net.Conn

	mu    sync.Mutex // guards all below
	gone  bool
	reset bool
	bound map[string]func() // lease id → what gives it back
}

// trackingListener makes every connection a tracked one.
type trackingListener struct{ net.Listener }

func (l trackingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tracked{Conn: c, bound: make(map[string]func())}, nil
}

// Read remembers a reset. A Unix socket is reset when its peer is closed, or
// killed, with bytes unread.
func (t *tracked) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if errors.Is(err, unix.ECONNRESET) {
		t.mu.Lock()
		t.reset = true
		t.mu.Unlock()
	}
	return n, err
}

// bind calls giveBack when the connection ends, unless unbind comes first. On a
// connection that has ended it calls it at once.
func (t *tracked) bind(id string, giveBack func()) {
	t.mu.Lock()
	gone := t.gone
	if !gone {
		t.bound[id] = giveBack
	}
	t.mu.Unlock()
	if gone {
		giveBack()
	}
}

func (t *tracked) unbind(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.bound, id)
}

// end gives back everything bound.
func (t *tracked) end() {
	t.mu.Lock()
	t.gone = true
	bound := t.bound
	t.bound = nil
	t.mu.Unlock()
	for _, giveBack := range bound {
		giveBack()
	}
}

// taken waits until the peer has taken all bytes that were written, and tells
// whether it did. For a Unix socket the kernel knows: its queue is empty when the
// peer has read the last byte, and the socket is reset when it went away before.
func (t *tracked) taken(ctx context.Context) bool {
	raw, ok := t.Conn.(syscall.Conn)
	if !ok {
		return ctx.Err() == nil
	}
	rc, err := raw.SyscallConn()
	if err != nil {
		return false
	}
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		var queued, failed int
		err := rc.Control(func(fd uintptr) {
			queued, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)                    // a closed socket shows below
			failed, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR) // the same
		})
		t.mu.Lock()
		reset := t.reset || failed != 0
		t.mu.Unlock()
		switch {
		case err != nil || reset:
			return false
		case queued == 0:
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}

type connKey struct{}

// connOf is the connection that a request came on.
func connOf(r *http.Request) *tracked {
	c, _ := r.Context().Value(connKey{}).(*tracked)
	return c
}

// Server is an http.Server whose connections are watched, as leases bound to them
// need.
type Server struct {
	http   http.Server
	ending atomic.Bool
}

// NewServer serves h.
func NewServer(h http.Handler) *Server {
	s := &Server{}
	s.http.Handler = h
	s.http.ReadHeaderTimeout = 10 * time.Second
	s.http.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	s.http.ConnState = func(c net.Conn, state http.ConnState) {
		// That the server ends says nothing of the reader: it keeps its lease, and
		// comes back with it to the next server.
		if t, ok := c.(*tracked); ok && state == http.StateClosed && !s.ending.Load() {
			t.end()
		}
	}
	return s
}

// Serve accepts connections on l until Close.
func (s *Server) Serve(l net.Listener) error {
	err := s.http.Serve(trackingListener{l})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close ends all connections. Leases bound to them stay.
func (s *Server) Close() error {
	s.ending.Store(true)
	return s.http.Close()
}

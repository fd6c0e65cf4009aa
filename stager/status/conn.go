package status

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tracked is a server's connection. It tells when it ends, and whether its peer
// took what was sent.
type tracked struct {
	net.Conn
	raw syscall.RawConn

	mu    sync.Mutex // guards all below, and the socket's pending error
	reset bool       // the peer went away with bytes unread
	ended bool
	atEnd func()
}

// trackingListener makes every connection a tracked one.
type trackingListener struct{ net.Listener }

func (l trackingListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if raw, err := c.(syscall.Conn).SyscallConn(); err == nil {
			return &tracked{Conn: c, raw: raw}, nil
		}
		_ = c.Close() // it cannot be used
	}
}

// Read reads, and remembers a reset: a socket is reset when its peer is closed, or
// killed, with bytes unread. The kernel tells so once, to whoever asks first; the lock
// makes sure that nobody looks between its telling and our remembering.
func (t *tracked) Read(p []byte) (n int, err error) {
	waited := t.raw.Read(func(fd uintptr) bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		n, err = unix.Read(int(fd), p)
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Read(int(fd), p)
		}
		t.reset = t.reset || errors.Is(err, unix.ECONNRESET)
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case waited != nil:
		return 0, waited // a deadline, or closed by us
	case err != nil:
		return 0, &net.OpError{Op: "read", Net: t.LocalAddr().Network(), Source: t.LocalAddr(), Addr: t.RemoteAddr(), Err: os.NewSyscallError("read", err)}
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// look tells how many bytes the peer has yet to take, and whether it can still: not
// when it is gone, or this end is closed.
func (t *tracked) look() (queued int, sound bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	failed := 0
	err := t.raw.Control(func(fd uintptr) {
		// In this order: the kernel notes a reset before it empties the queue.
		queued, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)                    // every stream socket knows
		failed, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR) // the same
	})
	t.reset = t.reset || failed != 0
	return queued, err == nil && !t.reset
}

// longestLook is how far apart the looks at a slow reader's queue are.
const longestLook = 20 * time.Millisecond

// taken waits until the peer has taken all bytes that were written, and tells
// whether it did. For a Unix socket the kernel knows to the byte: its queue is empty
// when the peer has read the last one, and the socket is reset when it went away
// before. Over TCP it knows of the peer's kernel; wasReset tells the rest later.
func (t *tracked) taken(ctx context.Context) bool {
	gone := ctx.Done()
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, longestLook) {
		switch queued, sound := t.look(); {
		case !sound:
			return false
		case queued == 0:
			return true
		}
		select {
		case <-gone:
			gone = nil // the peer ended: look at once. One that only stopped sending reads on
		case <-time.After(pause):
		}
	}
}

// wasReset tells whether the peer went away with bytes unread.
func (t *tracked) wasReset() bool {
	t.look()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reset
}

// onEnd has f called when the connection ends: at once if it has. The last f counts.
func (t *tracked) onEnd(f func()) {
	t.mu.Lock()
	ended := t.ended
	t.atEnd = f
	t.mu.Unlock()
	if ended {
		f()
	}
}

func (t *tracked) end() {
	t.mu.Lock()
	t.ended = true
	f := t.atEnd
	t.mu.Unlock()
	if f != nil {
		f()
	}
}

type connKey struct{}

// connOf is the connection that a request came on; nil under a foreign server.
func connOf(r *http.Request) *tracked {
	c, _ := r.Context().Value(connKey{}).(*tracked)
	return c
}

// Server is an http.Server whose connections are watched, as leases bound to them
// need.
type Server struct {
	http   http.Server
	stop   context.CancelFunc
	ending atomic.Bool
	gate   sync.RWMutex // held for reading by every handler
}

// NewServer serves h.
func NewServer(h http.Handler) *Server {
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{stop: stop}
	s.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.gate.RLock()
		defer s.gate.RUnlock()
		if s.ending.Load() {
			abort()
		}
		h.ServeHTTP(w, r)
	})
	s.http.ReadHeaderTimeout = 10 * time.Second
	s.http.BaseContext = func(net.Listener) context.Context {
		return context.WithValue(ctx, serverKey{}, s)
	}
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

type serverKey struct{}

// serverEnds tells whether a request breaks off because its server does.
func serverEnds(r *http.Request) bool {
	s, _ := r.Context().Value(serverKey{}).(*Server)
	return s != nil && s.ending.Load()
}

// Serve accepts connections on l until Close.
func (s *Server) Serve(l net.Listener) error {
	err := s.http.Serve(trackingListener{l})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close ends all connections and returns when their handlers have. Leases bound to
// the connections stay.
func (s *Server) Close() error {
	s.ending.Store(true)
	s.stop()
	err := s.http.Close()
	s.gate.Lock() // a handler that comes later sees that the server ends
	defer s.gate.Unlock()
	return err
}

package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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
	raw   syscall.RawConn
	table *connections
	use   use // guarded by table

	patient  atomic.Bool  // the peer may take its time to read: it gets a shard
	progress atomic.Int64 // when the peer last took bytes, in nanoseconds since the server's start

	mu    sync.Mutex // guards all below, and the socket's pending error
	reset bool       // the peer went away with bytes unread
	ended bool
	atEnd func()
}

// trackingListener makes every connection a tracked one, and admits it to the table.
type trackingListener struct {
	net.Listener
	table *connections
}

func (l trackingListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if raw, err := c.(syscall.Conn).SyscallConn(); err == nil {
			t := &tracked{Conn: c, raw: raw, table: l.table}
			if l.table.admit(t) {
				return t, nil
			}
			t.turnAway()
		}
		_ = c.Close() // it cannot be used
	}
}

// turnAway answers a connection that is not served.
func (t *tracked) turnAway() {
	body := `{"error":"` + errTooMany.Error() + "\"}\n"
	// What is sent fits into the empty buffer of a new connection.
	_ = t.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(t.Conn, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: %d\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s", len(body), body)
}

// Close takes the connection out of its table.
func (t *tracked) Close() error {
	t.table.remove(t)
	return t.Conn.Close()
}

// Write writes within the table's time for a peer that takes nothing, except to a patient
// one.
func (t *tracked) Write(p []byte) (int, error) {
	if !t.patient.Load() {
		if err := t.SetWriteDeadline(time.Now().Add(t.table.limits.Stall)); err != nil {
			return 0, err
		}
	}
	n, err := t.Conn.Write(p)
	if n > 0 {
		t.progress.Store(t.table.now())
	}
	return n, err
}

// awaitReader has writes wait as long as the peer lives, until the returned function is
// called.
func (t *tracked) awaitReader() (done func()) {
	if t == nil {
		return func() {}
	}
	t.progress.Store(t.table.now())
	t.patient.Store(true)
	_ = t.SetWriteDeadline(time.Time{}) // of a closed connection the next write reports it
	return func() { t.patient.Store(false) }
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

// maxWait is how far apart the looks at a slow reader's queue are.
const maxWait = 20 * time.Millisecond

// taken waits until the peer has taken all bytes that were written, and tells
// whether it did. For a Unix socket the kernel knows to the byte: its queue is empty
// when the peer has read the last one, and the socket is reset when it went away
// before. Over TCP it knows of the peer's kernel; wasReset tells the rest later.
func (t *tracked) taken(ctx context.Context) bool {
	gone := ctx.Done()
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, maxWait) {
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

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

	"github.com/stager-dev/stager/backends/sys"
)

// tracked is a server's connection. It reports when it ends, and whether its peer has received what
// was sent.
type tracked struct {
	net.Conn
	raw   syscall.RawConn
	table *connections
	use   use // guarded by table

	patient  atomic.Bool  // the peer may read slowly, as it gets a shard
	progress atomic.Int64 // when the peer last received bytes, in nanoseconds since the server's start

	mu    sync.Mutex // guards all below, and the socket's pending error
	reset bool       // the peer closed with bytes unread
	ended bool
	atEnd func()
}

// trackingListener wraps every connection in a tracked and admits it to the table.
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
		_ = c.Close() // the connection is unusable
	}
}

// turnAway sends 503 to a connection that is not served.
func (t *tracked) turnAway() {
	body := `{"error":"` + errTooMany.Error() + "\"}\n"
	// The response fits into the empty buffer of a new connection.
	_ = t.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(t.Conn, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: %d\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s", len(body), body)
}

// Close removes the connection from its table.
func (t *tracked) Close() error {
	t.table.remove(t)
	return t.Conn.Close()
}

// Write fails if the peer reads nothing within the table's limit, unless the peer is patient.
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

// awaitReader removes the write deadline until the returned function is called: writes wait as long
// as the peer lives.
func (t *tracked) awaitReader() (done func()) {
	if t == nil {
		return func() {}
	}
	t.progress.Store(t.table.now())
	t.patient.Store(true)
	_ = t.SetWriteDeadline(time.Time{}) // on a closed connection the next write fails
	return func() { t.patient.Store(false) }
}

// Read reads, and remembers a reset: the kernel resets a socket when its peer is closed, or killed,
// with bytes unread. The kernel reports the reset only once, to the first caller. The lock ensures
// that nobody queries the socket between that report and the note of it.
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
		return 0, waited // deadline exceeded, or closed by this process
	case err != nil:
		return 0, &net.OpError{Op: "read", Net: t.LocalAddr().Network(), Source: t.LocalAddr(), Addr: t.RemoteAddr(), Err: os.NewSyscallError("read", err)}
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// look returns how many bytes the peer has yet to read. sound is false if the peer is gone or this
// end is closed.
func (t *tracked) look() (queued int, sound bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	failed := false
	err := t.raw.Control(func(fd uintptr) {
		queued, failed = sys.Unread(int(fd))
	})
	t.reset = t.reset || failed
	return queued, err == nil && !t.reset
}

// maxWait is the maximum interval between checks of a slow reader's queue.
const maxWait = 20 * time.Millisecond

// taken waits until the peer has received all bytes that were written, and reports whether it did.
// For a Unix socket the kernel knows this to the byte: its queue is empty when the peer has read
// the last one, and the socket is reset when the peer went away before. Over TCP it only covers the
// peer's kernel; wasReset covers the rest later.
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
			gone = nil // the peer closed its side: check at once. A peer that only stopped sending still reads
		case <-time.After(pause):
		}
	}
}

// wasReset reports whether the peer went away with bytes unread.
func (t *tracked) wasReset() bool {
	t.look()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reset
}

// onEnd calls f when the connection ends, or at once if it has ended. Only the last f is called.
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

package objectstore

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/sys"
)

// socket is a connection that also supports non-blocking reads. An expired deadline does not
// provide that: Go then returns without checking for data.
type socket struct {
	net.Conn
	raw   syscall.RawConn // nil: non-blocking reads are not possible
	hurry bool            // Read does not block
	peek  peek
}

// peek is one read that does not block, into p, and its result.
type peek struct {
	read func(fd uintptr) bool // made once, since it escapes
	p    []byte
	n    int
	err  error
}

// errNothing means that no data is available. TLS treats it as a timeout, after which the
// connection can still be read.
var errNothing = os.ErrDeadlineExceeded

func newSocket(conn net.Conn) *socket {
	s := &socket{Conn: conn}
	if c, ok := conn.(syscall.Conn); ok {
		s.raw, _ = c.SyscallConn() // nil after an error
	}
	s.peek.read = func(fd uintptr) bool {
		s.peek.n, s.peek.err = unix.Read(int(fd), s.peek.p)
		return true
	}
	return s
}

func (s *socket) Read(p []byte) (n int, err error) {
	switch {
	case !s.hurry:
		return s.Conn.Read(p)
	case s.raw == nil:
		return 0, errNothing
	}
	s.peek.p = p
	gone := s.raw.Read(s.peek.read)
	n, err = s.peek.n, s.peek.err
	s.peek.p, s.peek.n, s.peek.err = nil, 0, nil
	switch {
	case gone != nil:
		return 0, gone
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return 0, errNothing
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// sendFile lets the kernel send up to n bytes of f from off on. It returns how many were sent; 0
// after an error.
func (s *socket) sendFile(f *os.File, off int64, n int) (sent int) {
	var err error
	gone := s.raw.Write(func(fd uintptr) bool {
		sent, err = sys.Sendfile(int(fd), int(f.Fd()), off, n)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	if gone != nil || err != nil {
		return 0
	}
	return sent
}

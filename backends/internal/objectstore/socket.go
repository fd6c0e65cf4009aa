package objectstore

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// socket is a connection that can also be read without waiting. A deadline that has passed
// is no way to: Go then does not look whether something is there.
type socket struct {
	net.Conn
	raw   syscall.RawConn // nil: there is only the other way to read it
	hurry bool            // Read does not wait
}

// errNothing says that nothing came. To what is spoken over a socket it is a time-out, after
// which that can be read further.
var errNothing = os.ErrDeadlineExceeded

func newSocket(conn net.Conn) *socket {
	s := &socket{Conn: conn}
	if c, ok := conn.(syscall.Conn); ok {
		s.raw, _ = c.SyscallConn() // with an error it is nil
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
	gone := s.raw.Read(func(fd uintptr) bool {
		n, err = unix.Read(int(fd), p)
		return true
	})
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

// sendFile has the kernel send up to n bytes of a file from off on, and returns how many it
// did; 0 after an error.
func (s *socket) sendFile(f *os.File, off int64, n int) (sent int) {
	var err error
	gone := s.raw.Write(func(fd uintptr) bool {
		from := off
		sent, err = unix.Sendfile(int(fd), int(f.Fd()), &from, n)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	if gone != nil || err != nil {
		return 0
	}
	return sent
}

package sys

import "golang.org/x/sys/unix"

// Sendfile sends up to n bytes of a file from off on to a socket, and returns how many it sent. With
// an error it sent none: macOS also reports what it sent before an error such as EAGAIN, and a
// caller that sent these bytes again would corrupt the stream.
func Sendfile(socket, file int, off int64, n int) (sent int, err error) {
	if sent, err = unix.Sendfile(socket, file, &off, n); sent > 0 {
		err = nil
	}
	return sent, err
}

// Unread returns how many bytes the peer of a stream socket has yet to read. failed means that the
// connection is broken, or that the kernel does not report such bytes: that of macOS does not.
func Unread(int) (queued int, failed bool) { return 0, true }

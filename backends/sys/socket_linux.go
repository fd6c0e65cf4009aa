package sys

import "golang.org/x/sys/unix"

// Sendfile sends up to n bytes of a file from off on to a socket, and returns how many it sent. With
// an error it sent none.
func Sendfile(socket, file int, off int64, n int) (sent int, err error) {
	return unix.Sendfile(socket, file, &off, n)
}

// Unread returns how many bytes the peer of a stream socket has yet to read. failed means that the
// connection is broken, or that the kernel does not report such bytes.
func Unread(socket int) (queued int, failed bool) {
	// In this order: the kernel notes a reset before it empties the queue.
	queued, _ = unix.IoctlGetInt(socket, unix.SIOCOUTQ)                      // works for every stream socket
	pending, _ := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_ERROR) // likewise
	return queued, pending != 0
}

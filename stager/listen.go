package stager

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// socketMode lets the socket's owner and group in: in a pod the trainer's.
const socketMode = 0o660

// longestSocketPath is what the kernel takes (sun_path, with its final zero).
const longestSocketPath = 107

// SocketInUseError says that another daemon listens.
type SocketInUseError struct{ Path string }

func (e *SocketInUseError) Error() string {
	return fmt.Sprintf("another stager listens on %s; end it, or give this one a --socket of its own", e.Path)
}

// ExitCode is EX_TEMPFAIL: when the other ends, trying again helps.
func (e *SocketInUseError) ExitCode() int { return 75 }

// PortError says that the port cannot be listened on.
type PortError struct{ Err error }

func (e *PortError) Error() string {
	return fmt.Sprintf("the port cannot be opened: %v; --listen says which, as in :9090", e.Err)
}

// Unwrap is the cause.
func (e *PortError) Unwrap() error { return e.Err }

// ExitCode is EX_TEMPFAIL when somebody else has the port, else EX_CONFIG.
func (e *PortError) ExitCode() int {
	if errors.Is(e.Err, unix.EADDRINUSE) {
		return 75
	}
	return 78
}

// listen makes the API's socket. One that a killed daemon left behind is replaced.
func listen(path string) (net.Listener, error) {
	if len(path) > longestSocketPath {
		return nil, fmt.Errorf("the socket's path has %d bytes and the kernel takes %d: choose a shorter --socket", len(path), longestSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("no place for the socket: %w; --socket names another", err)
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = conn.Close() // it has told what was asked
		return nil, &SocketInUseError{path}
	} else if errors.Is(err, unix.ECONNREFUSED) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("%w; --socket names another place", err)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

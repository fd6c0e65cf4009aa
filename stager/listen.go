package stager

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
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

// SocketError says that the socket cannot be made.
type SocketError struct{ Err error }

func (e *SocketError) Error() string { return "no place for the API's socket: " + e.Err.Error() }

// Unwrap is the cause.
func (e *SocketError) Unwrap() error { return e.Err }

// ExitCode is EX_NOPERM when it may not be made, else EX_CONFIG.
func (e *SocketError) ExitCode() int {
	if errors.Is(e.Err, fs.ErrPermission) {
		return 77
	}
	return 78
}

// socket is a listener with the lock that makes its path this process's. The lock is
// a file of its own: of two that start at once, none may remove the socket that the
// other has just made.
type socket struct {
	net.Listener
	lock *flock.Flock
}

// Close removes the socket, and gives its path free.
func (s *socket) Close() error { return errors.Join(s.Listener.Close(), s.lock.Unlock()) }

// listen makes the API's socket. One that a killed daemon left behind is replaced;
// anything else at its path is left alone.
func listen(path string) (net.Listener, error) {
	refuse := func(format string, args ...any) error {
		return &SocketError{fmt.Errorf(format+"; --socket names another place", args...)}
	}
	if len(path) > longestSocketPath {
		return nil, refuse("the socket's path has %d bytes and the kernel takes %d", len(path), longestSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, refuse("%w", err)
	}
	lock := flock.New(path + ".lock")
	if mine, err := lock.TryLock(); err != nil {
		return nil, refuse("%w", err)
	} else if !mine {
		return nil, &SocketInUseError{path}
	}
	l, err := listenLocked(path, refuse)
	if err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return &socket{l, lock}, nil
}

// letIn opens a socket to every user who can reach its folder.
func letIn(path string) error {
	if err := os.Chmod(path, 0o666); err != nil {
		return &SocketError{err}
	}
	return nil
}

func listenLocked(path string, refuse func(string, ...any) error) (net.Listener, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, refuse("%w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, refuse("%s is there and is no socket", path)
	default:
		if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
			_ = conn.Close() // it has told what was asked
			return nil, refuse("another program listens on %s", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, refuse("%w", err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, refuse("%w", err)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(refuse("%w", err), l.Close())
	}
	return l, nil
}

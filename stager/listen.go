package stager

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/window/disk"
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
	root *os.Root // its directory
	name string
	lock *disk.Lock
	info fs.FileInfo // of the socket
}

// Close removes the socket, unless another program's has its name now, and gives its path
// free.
func (s *socket) Close() error {
	err := s.Listener.Close()
	if info, lerr := s.root.Lstat(s.name); lerr == nil && os.SameFile(info, s.info) {
		err = errors.Join(err, s.root.Remove(s.name))
	}
	return errors.Join(err, note{Stager: os.Getpid()}.write(s.lock), s.lock.Close(), s.root.Close())
}

// note is what the lock file tells of the socket, so that one whose process was killed is
// known from another program's.
type note struct {
	Stager int    `json:"stager"` // process
	Inode  uint64 `json:"inode,omitempty"`
}

func (n note) write(lock *disk.Lock) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return lock.SetNote(append(text, '\n'))
}

// left tells whether a socket is one that an earlier stager left: the note names it, or
// says that a stager listened there and nothing more, and this user owns it.
func (n note) left(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && n.Stager != 0 && int(st.Uid) == os.Geteuid() && (n.Inode == 0 || n.Inode == st.Ino)
}

// listen makes the API's socket. One that a killed daemon left behind is replaced;
// anything else at its path is left alone.
func listen(path string) (net.Listener, error) {
	refuse := func(format string, args ...any) error {
		return &SocketError{fmt.Errorf(format+"; --socket names another place", args...)}
	}
	if len(path) > longestSocketPath {
		return nil, refuse("the socket's path has %d bytes and the kernel takes %d", len(path), longestSocketPath)
	}
	root, err := disk.MakeRoot(filepath.Dir(path))
	if err != nil {
		return nil, refuse("%w", err)
	}
	name := filepath.Base(path)
	lock, err := disk.AcquireFile(root, name+".lock")
	if errors.As(err, new(*disk.BusyError)) {
		return nil, errors.Join(&SocketInUseError{path}, root.Close())
	}
	if err != nil {
		return nil, errors.Join(refuse("%w", err), root.Close())
	}
	s := &socket{root: root, name: name, lock: lock}
	text, err := lock.Note()
	if err == nil {
		var before note
		_ = json.Unmarshal(text, &before) // of what is no note nothing is known
		err = s.listen(path, before, refuse)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close(), root.Close())
	}
	return s, nil
}

// letIn opens a socket to every user who can reach its directory.
func letIn(path string) error {
	root, err := disk.OpenRoot(filepath.Dir(path))
	if err != nil {
		return &SocketError{err}
	}
	defer root.Close() // opened for its name
	// Through a link in the socket's place another file would become everybody's.
	info, err := root.Lstat(filepath.Base(path))
	if err == nil && info.Mode().Type() != fs.ModeSocket {
		err = fmt.Errorf("%s was replaced by another program", path)
	}
	if err == nil {
		err = root.Chmod(filepath.Base(path), 0o666)
	}
	if err != nil {
		return &SocketError{err}
	}
	return nil
}

func (s *socket) listen(path string, before note, refuse func(string, ...any) error) error {
	switch info, err := s.root.Lstat(s.name); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return refuse("%w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return refuse("%s is there and is no socket", path)
	default:
		if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
			_ = conn.Close() // it has told what was asked
			return refuse("another program listens on %s", path)
		}
		if !before.left(info) {
			return refuse("%s is a socket that no stager left there; remove it if no program needs it", path)
		}
		if err := s.root.Remove(s.name); err != nil {
			return refuse("%w", err)
		}
	}
	// Before the socket: a kill between the two leaves one that is known.
	if err := (note{Stager: os.Getpid()}).write(s.lock); err != nil {
		return refuse("%w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return refuse("%w", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // Close looks whose it is
	s.Listener = l
	if s.info, err = s.root.Lstat(s.name); err == nil && s.info.Mode().Type() != fs.ModeSocket {
		err = fmt.Errorf("%s was replaced by another program", path)
	}
	if err == nil {
		err = s.root.Chmod(s.name, socketMode)
	}
	if st, ok := s.info.Sys().(*syscall.Stat_t); err == nil && ok {
		err = note{Stager: os.Getpid(), Inode: st.Ino}.write(s.lock)
	}
	if err != nil {
		return errors.Join(refuse("%w", err), l.Close())
	}
	return nil
}

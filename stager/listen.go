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

	"github.com/stager-dev/stager/window/disk"
)

// socketMode grants access to the socket's owner and group: in a pod, the trainer's.
const socketMode = 0o660

// longestSocketPath is the kernel's limit (sun_path, with its final zero).
const longestSocketPath = 107

// SocketInUseError reports that another daemon listens on the socket.
type SocketInUseError struct{ Path string }

func (e *SocketInUseError) Error() string {
	return fmt.Sprintf("another stager listens on %s; stop it, or use another --socket", e.Path)
}

// PortError reports that stager cannot listen on the port.
type PortError struct{ Err error }

func (e *PortError) Error() string {
	return fmt.Sprintf("cannot listen: %v; set the address with --listen, such as :9090", e.Err)
}

// Unwrap returns the cause.
func (e *PortError) Unwrap() error { return e.Err }

// SocketError reports that the socket cannot be created.
type SocketError struct{ Err error }

func (e *SocketError) Error() string { return "cannot create the API's socket: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *SocketError) Unwrap() error { return e.Err }

// socket is a listener and the lock that reserves its path for this process. The lock is a separate
// file: if two processes start at once, neither may remove the socket that the other has just
// created.
type socket struct {
	net.Listener
	root *os.Root // its directory
	name string
	lock *disk.Lock
	info fs.FileInfo // of the socket
}

// Close removes the socket, unless the path now belongs to another program's socket, and releases
// the lock.
func (s *socket) Close() error {
	err := s.Listener.Close()
	if info, lerr := s.root.Lstat(s.name); lerr == nil && os.SameFile(info, s.info) {
		err = errors.Join(err, s.root.Remove(s.name))
	}
	return errors.Join(err, note{Stager: os.Getpid()}.write(s.lock), s.lock.Close(), s.root.Close())
}

// note is the content of the lock file. It identifies the socket, so that a socket left by a killed
// process can be distinguished from another program's.
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

// left reports whether a socket is an orphan of an earlier stager: the note identifies it, or the
// note only says that a stager listened there and this user owns the socket.
func (n note) left(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && n.Stager != 0 && int(st.Uid) == os.Geteuid() && (n.Inode == 0 || n.Inode == st.Ino)
}

// listen creates the API's socket. It replaces one that a killed daemon left behind; anything else
// at the path stays.
func listen(path string) (net.Listener, error) {
	refuse := func(format string, args ...any) error {
		return &SocketError{fmt.Errorf(format+"; use another --socket", args...)}
	}
	if len(path) > longestSocketPath {
		return nil, refuse("the socket's path has %d bytes, but the kernel allows %d", len(path), longestSocketPath)
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
		_ = json.Unmarshal(text, &before) // an unreadable note counts as none
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
	defer root.Close() // opened only to resolve the name
	// A symbolic link in place of the socket would open another file to everybody.
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
		return refuse("%s exists and is not a socket", path)
	default:
		if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
			_ = conn.Close() // the credentials have been read
			return refuse("another program listens on %s", path)
		}
		if !before.left(info) {
			return refuse("%s is a socket that stager did not create; remove it if it is unused", path)
		}
		if err := s.root.Remove(s.name); err != nil {
			return refuse("%w", err)
		}
	}
	// Write the note before creating the socket: a socket left by a kill in between is then
	// recognised.
	if err := (note{Stager: os.Getpid()}).write(s.lock); err != nil {
		return refuse("%w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return refuse("%w", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // Close checks the owner first
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

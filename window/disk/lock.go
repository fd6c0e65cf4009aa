package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
)

// LockName is the name of the lock file in a private directory.
const LockName = "LOCK"

// ErrNoLocks is returned on a file system without file locks.
var ErrNoLocks = errors.New("the file system has no file locks")

// A Lock is an exclusive lock on a file. The kernel releases it when the process ends, in whatever
// way. The file stays, and contains a note about the holder.
type Lock struct {
	file *os.File
	dir  *os.File // of the file
	base string   // its name there
}

// Acquire locks the file LockName in dir and writes holder into it. If another process holds the
// lock, it returns a *BusyError with path. With create, a missing file is created; without it, a
// missing file is an error that is fs.ErrNotExist.
//
// The file is opened without following a link and without blocking.
func Acquire(dir *os.Root, path, holder string, create bool) (*Lock, error) {
	at, err := OpenDir(dir)
	if err != nil {
		return nil, err
	}
	l, err := acquire(at, LockName, path, func() (*os.File, error) { return openLock(at, create) })
	if err != nil {
		return nil, err
	}
	_ = l.SetNote([]byte(holder + "\n")) // informative only
	return l, nil
}

// AcquireFile locks the file name below root, which no other program uses. It first removes an
// object of that name that is not a regular file or has other names. It retains the note of the
// previous holder. If another process holds the lock, it returns a *BusyError.
func AcquireFile(root *os.Root, name string) (*Lock, error) {
	at, base, err := parent(root, name)
	if err != nil {
		return nil, err
	}
	return acquire(at, base, name, func() (*os.File, error) {
		// A job that copies the directory as another user must be able to read the file.
		return openOwnAt(at, base, name, os.O_RDWR, 0o644)
	})
}

// acquire locks the file base in the directory at, which it closes with the lock or when
// it fails. A holder may remove the file, or another program may replace it, between open
// and lock, so acquire checks that what it locked still has the name.
func acquire(at *os.File, base, path string, open func() (*os.File, error)) (*Lock, error) {
	for {
		file, err := open()
		if err == nil {
			err = flock(file, path)
		}
		if err != nil {
			return nil, errors.Join(err, at.Close())
		}
		l := &Lock{file, at, base}
		if l.Held() {
			return l, nil
		}
		_ = file.Close() // it has lost its name, so it locks nothing
	}
}

// flock locks a file without waiting. It closes the file when it fails.
func flock(file *os.File, path string) error {
	err := retryErr(func() error { return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EWOULDBLOCK):
		err = &BusyError{path, holderOf(file)}
	case errors.Is(err, errors.ErrUnsupported), errors.Is(err, unix.ENOLCK):
		err = fmt.Errorf("%w: %w", ErrNoLocks, err)
	default:
		err = &fs.PathError{Op: "flock", Path: path, Err: err}
	}
	return errors.Join(err, file.Close())
}

// openLock opens the lock file, for reading alone where it belongs to another user.
func openLock(at *os.File, create bool) (*os.File, error) {
	open := func(flags int) (*os.File, error) {
		fd, err := retry(func() (int, error) {
			return unix.Openat(int(at.Fd()), LockName, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o644)
		})
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: at.Name() + "/" + LockName, Err: err}
		}
		return os.NewFile(uintptr(fd), at.Name()+"/"+LockName), nil
	}
	file, err := open(unix.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) && create {
		file, err = open(unix.O_RDWR | unix.O_CREAT)
	}
	if errors.Is(err, fs.ErrPermission) {
		file, err = open(unix.O_RDONLY)
	}
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "lock", Path: file.Name(), Err: errors.New("not a regular file: remove it")}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// holderOf returns the note of the process that holds the lock. It may be a moment
// behind the lock, and comes from a file that others may write.
func holderOf(file *os.File) string {
	text, _ := io.ReadAll(io.NewSectionReader(file, 0, 1<<10)) // informative only
	who := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.TrimSpace(string(text)))
	if who == "" {
		return "unknown"
	}
	return who
}

// Note returns the first 64 KiB of the note that SetNote wrote last, in this process or an earlier
// one.
func (l *Lock) Note() ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(l.file, 0, 64<<10))
}

// SetNote writes a note about the holder into the file.
func (l *Lock) SetNote(note []byte) error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt(note, 0)
	return err
}

// Held reports whether the lock file still has its name. If not, another process can hold the lock,
// too.
func (l *Lock) Held() bool {
	var here, there unix.Stat_t
	err := retryErr(func() error { return unix.Fstat(int(l.file.Fd()), &here) })
	if err == nil {
		err = retryErr(func() error { return unix.Fstatat(int(l.dir.Fd()), l.base, &there, unix.AT_SYMLINK_NOFOLLOW) })
	}
	return err == nil && here.Dev == there.Dev && here.Ino == there.Ino
}

// Remove removes the lock file. The lock is held until Close.
func (l *Lock) Remove() error {
	err := retryErr(func() error { return unix.Unlinkat(int(l.dir.Fd()), l.base, 0) })
	if err != nil {
		return &fs.PathError{Op: "remove", Path: l.file.Name(), Err: err}
	}
	return nil
}

// Close releases the lock.
func (l *Lock) Close() error { return errors.Join(l.file.Close(), l.dir.Close()) }

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

// ErrNoLocks is the error of a file system that has no locks.
var ErrNoLocks = errors.New("the file system has no file locks")

// A Lock is an exclusive lock on a directory, which ends with its process. Its file
// holds a note about the holder, for a person.
type Lock struct {
	file *os.File
	dir  *os.File
}

// Acquire locks the file LockName in dir, and writes holder into it. path names what is
// locked, in a *BusyError, when another process holds the lock. With create the file is
// made if need be; without it a missing file is an error that is fs.ErrNotExist.
//
// The file is opened without following a link and without blocking. A holder may remove
// it with Remove, so Acquire checks that what it locked still has the name.
func Acquire(dir *os.Root, path, holder string, create bool) (*Lock, error) {
	at, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	for {
		l, err := acquire(at, path, holder, create)
		switch {
		case err != nil:
			return nil, errors.Join(err, at.Close())
		case l.Held():
			l.note(holder)
			return l, nil
		}
		_ = l.file.Close() // it has lost its name, so it locks nothing
	}
}

func acquire(at *os.File, path, holder string, create bool) (*Lock, error) {
	file, err := openLock(at, create)
	if err != nil {
		return nil, err
	}
	err = retryErr(func() error { return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	switch {
	case err == nil:
		return &Lock{file, at}, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		err = &BusyError{path, holderOf(file)}
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOLCK):
		err = fmt.Errorf("%w: %w", ErrNoLocks, err)
	default:
		err = &fs.PathError{Op: "flock", Path: path, Err: err}
	}
	return nil, errors.Join(err, file.Close())
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
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		err = errors.Join(err, &fs.PathError{Op: "lock", Path: file.Name(), Err: errors.New("it is no plain file: remove it")})
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// holderOf returns the note of the process that holds the lock. It may be a moment
// behind the lock, and comes from a file that others may write.
func holderOf(file *os.File) string {
	text, _ := io.ReadAll(io.NewSectionReader(file, 0, 1<<10)) // words for a person
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

func (l *Lock) note(holder string) {
	_ = l.file.Truncate(0)                        // words for a person, like the next line
	_, _ = l.file.WriteAt([]byte(holder+"\n"), 0) // as above
}

// Held reports whether the lock file still has its name. Without it another process can
// hold the lock, too.
func (l *Lock) Held() bool {
	var here, there unix.Stat_t
	err := retryErr(func() error { return unix.Fstat(int(l.file.Fd()), &here) })
	if err == nil {
		err = retryErr(func() error { return unix.Fstatat(int(l.dir.Fd()), LockName, &there, unix.AT_SYMLINK_NOFOLLOW) })
	}
	return err == nil && here.Dev == there.Dev && here.Ino == there.Ino
}

// Remove removes the lock file. The lock is held until Close.
func (l *Lock) Remove() error {
	return retryErr(func() error { return unix.Unlinkat(int(l.dir.Fd()), LockName, 0) })
}

// Close gives the lock back.
func (l *Lock) Close() error { return errors.Join(l.file.Close(), l.dir.Close()) }

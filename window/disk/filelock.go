package disk

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// FileLock is a lock file of any name that this process holds. The kernel gives it free when the process
// ends, however it ends; the file stays.
type FileLock struct{ file *os.File }

// ErrLocked says that another process holds the lock.
var ErrLocked = errors.New("another process holds the lock")

// TakeLock locks a file below root, and makes it if need be. It never waits, neither for
// the holder nor for what has the name and is no file: that is removed. When another
// process holds the lock it returns ErrLocked, and the note that this one left.
func TakeLock(root *os.Root, name string) (lock *FileLock, note []byte, err error) {
	for {
		// A job that copies the directory, as whichever user, must not fail at the file.
		file, err := OpenOwn(root, name, os.O_RDWR, 0o644)
		if err != nil {
			return nil, nil, err
		}
		err = retryErr(func() error { return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
		l := &FileLock{file}
		if errors.Is(err, unix.EWOULDBLOCK) {
			note, _ := l.Note() // words for a person
			return nil, note, errors.Join(ErrLocked, file.Close())
		}
		if err != nil {
			return nil, nil, errors.Join(err, file.Close())
		}
		// Somebody may have taken the name away meanwhile: then others lock another file.
		if now, err := root.Lstat(name); err == nil {
			if info, err := file.Stat(); err == nil && os.SameFile(now, info) {
				return l, nil, nil
			}
		}
		if err := file.Close(); err != nil {
			return nil, nil, err
		}
	}
}

// Note is what SetNote wrote last, in this process or an earlier one.
func (l *FileLock) Note() ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(l.file, 0, 64<<10))
}

// SetNote writes into the file who holds it.
func (l *FileLock) SetNote(note []byte) error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt(note, 0)
	return err
}

// Unlock gives the lock free.
func (l *FileLock) Unlock() error { return l.file.Close() }

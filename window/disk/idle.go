package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/sys"
)

// Only the kernel knows whether a process reads a file: a killed reader closes its files like one
// that has finished, and a mapped file may have no descriptor left. A file lease for writing (fcntl
// F_SETLEASE) finds out: the kernel refuses it while another process has the file open or mapped,
// under any name or none. It needs no privilege for files of the same user, and is held only for an
// instant. An open in that instant blocks until the lease ends, and causes a SIGIO, which Go
// programs catch and ignore.

// SeesOpenFiles reports whether the file system reports open files. Most network file systems do
// not.
func (f *Dir) SeesOpenFiles() bool {
	const name = Private + "/probe"
	first, err := OpenOwn(f.root, name, os.O_RDWR, 0o600)
	if err != nil {
		return false
	}
	defer f.root.Remove(name) // created and removed again by the next call
	defer first.Close()       // nothing was written
	if lease(first) != nil {
		return false
	}
	if unlease(first) != nil {
		return false
	}
	second, err := OpenFile(f.root, name, os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer second.Close() // opened for reading
	return errors.Is(lease(first), unix.EAGAIN)
}

// Idle reports whether the file is neither open nor mapped. An object that is not a regular file is
// always idle: it has no content to read.
func (s *Subdir) Idle(name string) (bool, error) {
	file, st, err := s.openIdle(name)
	if err != nil || file == nil {
		return err == nil, err
	}
	defer file.Close() // opened for reading
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return true, nil
	}
	switch err := lease(file); {
	case err == nil:
		return true, unlease(file)
	case errors.Is(err, unix.EAGAIN):
		return false, nil
	default:
		return false, s.fail("lease", name, err)
	}
}

// RemoveIdle removes the file, unless it is open or mapped or has other names; it then returns
// false. It also removes objects that are not regular files, but not directories.
func (s *Subdir) RemoveIdle(name string) (bool, error) {
	file, st, err := s.openIdle(name)
	if err != nil {
		return false, err
	}
	if file == nil {
		return true, s.Remove(name)
	}
	defer file.Close() // opened for reading; this ends the lease
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return true, s.Remove(name)
	case st.Nlink > 1:
		return false, nil
	}
	switch err := lease(file); {
	case err == nil:
		return true, s.Remove(name)
	case errors.Is(err, unix.EAGAIN):
		return false, nil
	default:
		return false, s.fail("lease", name, err)
	}
}

// openIdle opens a file for a lease. It returns nil for links and sockets, which cannot be opened.
func (s *Subdir) openIdle(name string) (file *os.File, st unix.Stat_t, err error) {
	file, err = s.open(name, unix.O_RDONLY)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, sys.OpenedSocket) {
		return nil, st, nil
	}
	if err != nil {
		return nil, st, err
	}
	if err := retryErr(func() error { return unix.Fstat(int(file.Fd()), &st) }); err != nil {
		return nil, st, errors.Join(s.fail("stat", name, err), file.Close())
	}
	return file, st, nil
}

func lease(file *os.File) error   { return setLease(file, unix.F_WRLCK) }
func unlease(file *os.File) error { return setLease(file, unix.F_UNLCK) }

func setLease(file *os.File, kind int) error {
	return retryErr(func() error { return sys.Lease(file, kind) })
}

// Boot returns the id of this boot of the machine. Data that was not synced in an earlier boot may
// be lost.
func Boot() string { return bootID() }

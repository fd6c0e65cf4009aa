package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Whether anybody reads a file is a question that only the kernel can answer: a
// reader that was killed closes its files like one that has finished, and a mapped
// file has no descriptor left. The kernel answers it to whoever asks for a lease
// for writing (fcntl F_SETLEASE): it is refused while anybody else has the file
// open or mapped, names or no names. It is asked for without privilege on files
// one owns, and kept for an instant only: an open in that instant waits for us, and
// the SIGIO that tells of it is one that Go programs catch and drop.

// SeesOpenFiles tells whether this file system says who has files open. Network
// file systems mostly do not.
func (f *Dir) SeesOpenFiles() bool {
	const name = Private + "/probe"
	first, err := OpenOwn(f.root, name, os.O_RDWR, 0o600)
	if err != nil {
		return false
	}
	defer f.root.Remove(name) // made again and removed by the next
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

// Idle reports whether nobody has the file open or mapped. What is no regular file has no
// content that somebody could be reading.
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

// RemoveIdle removes the file unless somebody has it open or mapped, or it has other
// names; then it stays and RemoveIdle returns false. It removes what is no regular file, but
// no directory.
func (s *Subdir) RemoveIdle(name string) (bool, error) {
	file, st, err := s.openIdle(name)
	if err != nil {
		return false, err
	}
	if file == nil {
		return true, s.Remove(name)
	}
	defer file.Close() // opened for reading; the lease ends here
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

// openIdle opens a file for a lease. It returns nil for what cannot be opened since it is a
// link or a socket.
func (s *Subdir) openIdle(name string) (file *os.File, st unix.Stat_t, err error) {
	file, err = s.open(name, unix.O_RDONLY)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
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
	_, err := retry(func() (int, error) { return unix.FcntlInt(file.Fd(), unix.F_SETLEASE, kind) })
	return err
}

// Boot names this boot of the machine: what was not synced in another one may be
// gone.
func Boot() string { return bootID() }

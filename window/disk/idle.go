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
func (f *Folder) SeesOpenFiles() bool {
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

// Idle tells whether nobody has the file open or mapped.
func (s *Shelf) Idle(name string) (bool, error) {
	file, err := s.open(name, unix.O_RDONLY)
	if err != nil {
		return false, err
	}
	defer file.Close() // opened for reading
	switch err := lease(file); {
	case err == nil:
		return true, unlease(file)
	case errors.Is(err, unix.EAGAIN):
		return false, nil
	default:
		return false, s.fail("lease", name, err)
	}
}

// RemoveIdle removes the file unless somebody has it open or mapped, or it has
// other names; then it stays and RemoveIdle says false.
func (s *Shelf) RemoveIdle(name string) (bool, error) {
	file, err := s.open(name, unix.O_RDONLY)
	if err != nil {
		return false, err
	}
	defer file.Close() // opened for reading; the lease ends here
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return false, s.fail("stat", name, err)
	}
	if st.Nlink > 1 {
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

func lease(file *os.File) error   { return setLease(file, unix.F_WRLCK) }
func unlease(file *os.File) error { return setLease(file, unix.F_UNLCK) }

func setLease(file *os.File, kind int) error {
	_, err := retry(func() (int, error) { return unix.FcntlInt(file.Fd(), unix.F_SETLEASE, kind) })
	return err
}

// Boot names this boot of the machine: what was not synced in another one may be
// gone.
func Boot() string { return bootID() }

package checkpoint

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// writeWatch reports whether anybody wrote to a file while it was read. The modification
// time does not: it may be set back, and a write through a mapping of a file in memory
// leaves it. Whoever writes either still has the file open for writing at the end, which
// beingWritten finds, or has closed it, which the kernel reports here. The writer is not
// held up.
type writeWatch struct{ fd int }

// watchWrites begins to watch an open file. Its error says that the kernel cannot, or
// has no room for more.
func watchWrites(file *os.File) (*writeWatch, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	// By its descriptor: the name may have become that of another file.
	name := fmt.Sprintf("/proc/self/fd/%d", file.Fd())
	if _, err := unix.InotifyAddWatch(fd, name, unix.IN_MODIFY|unix.IN_CLOSE_WRITE); err != nil {
		_ = unix.Close(fd) // nothing was asked of it
		return nil, err
	}
	return &writeWatch{fd}, nil
}

// written reports whether somebody wrote, or closed the file after it was open for
// writing.
func (w *writeWatch) written() bool {
	var event [4 << 10]byte
	n, err := unix.Read(w.fd, event[:])
	return err == nil && n > 0
}

func (w *writeWatch) close() { _ = unix.Close(w.fd) } // it was only read from

// steady checks that a file had one state from the time at which it was opened on.
type steady struct {
	file   *os.File
	want   local
	watch  *writeWatch // nil: the kernel cannot
	before int64       // change time
	memory bool        // the change time says nothing of writes through mappings
}

// beginSteady returns an error of kind Changed when the file is not as it was listed.
func beginSteady(file *os.File, want local) (*steady, error) {
	s := &steady{file: file, want: want}
	s.watch, _ = watchWrites(file) // without it end compares
	var fsys unix.Statfs_t
	s.memory = unix.Fstatfs(int(file.Fd()), &fsys) == nil && int64(fsys.Type)&0xffffffff == unix.TMPFS_MAGIC
	info, err := file.Stat()
	if err == nil {
		s.before = describePlain(want.Path, info).CTime
		err = unchanged(file, want)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// end returns an error of kind Changed when somebody wrote to the file meanwhile. again
// reads the file once more, and reports whether its bytes are those that were sent; it
// is called only where the kernel cannot tell.
func (s *steady) end(again func() (bool, error)) error {
	if err := unchanged(s.file, s.want); err != nil {
		return err
	}
	if s.watch != nil && s.watch.written() {
		return changed(s.want.Path)
	}
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	_, blind := beingWritten(s.file)
	touched := describePlain(s.want.Path, info).CTime != s.before
	if s.watch == nil && touched || s.memory && (s.watch == nil || blind != nil) {
		same, err := again()
		if err != nil {
			return err
		}
		if !same {
			return changed(s.want.Path)
		}
		return unchanged(s.file, s.want)
	}
	return nil
}

func (s *steady) close() {
	if s.watch != nil {
		s.watch.close()
	}
}

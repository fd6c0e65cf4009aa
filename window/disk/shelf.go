package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Shelf is one flat folder within a Folder, opened once. Whatever is done on it
// costs one system call and cannot lead out of it: names are single, and links are
// not followed.
type Shelf struct {
	name string
	dir  *os.File
}

// Stat is what a Shelf tells about a file.
type Stat struct {
	Ino   uint64 // names the file, under whatever name
	Links int    // how many names it has
	Size  int64
	Dir   bool
}

// Shelf makes the folder of that name, gives it this mode whatever the umask, and
// opens it. The owner of a folder that stands and has another mode must be us.
func (f *Folder) Shelf(name string, mode fs.FileMode) (*Shelf, error) {
	if err := f.root.MkdirAll(name, 0o755); err != nil {
		return nil, err
	}
	info, err := f.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	const bits = fs.ModePerm | fs.ModeSticky
	if info.Mode()&bits != mode&bits {
		if err := f.root.Chmod(name, mode); err != nil {
			return nil, fmt.Errorf("%w: readers need mode %v there; change it, or remove the folder", err, mode)
		}
	}
	dir, err := f.root.Open(name)
	if err != nil {
		return nil, err
	}
	return &Shelf{name, dir}, nil
}

// Sub opens a folder on the shelf, as it is.
func (s *Shelf) Sub(name string) (*Shelf, error) {
	dir, err := s.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return &Shelf{s.name + "/" + name, dir}, nil
}

// Name is the shelf's path within its Folder.
func (s *Shelf) Name() string { return s.name }

// Close lets go of the shelf.
func (s *Shelf) Close() error { return s.dir.Close() }

// Names lists what is there, in no order.
func (s *Shelf) Names() ([]string, error) {
	// A descriptor of its own, so that lists at the same time don't share a place.
	fd, err := retry(func() (int, error) {
		return unix.Openat(s.fd(), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, s.fail("list", ".", err)
	}
	dir := os.NewFile(uintptr(fd), s.name)
	defer dir.Close() // opened for reading
	return dir.Readdirnames(-1)
}

// Stat tells about a file. fs.ErrNotExist when it is not there.
func (s *Shelf) Stat(name string) (Stat, error) {
	var st unix.Stat_t
	err := single(name)
	if err == nil {
		err = retryErr(func() error { return unix.Fstatat(s.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	}
	if err != nil {
		return Stat{}, s.fail("stat", name, err)
	}
	return Stat{st.Ino, int(st.Nlink), st.Size, st.Mode&unix.S_IFMT == unix.S_IFDIR}, nil // Nlink differs by machine
}

// Create makes an empty file that was not there.
func (s *Shelf) Create(name string, mode fs.FileMode) error {
	err := single(name)
	var fd int
	if err == nil {
		fd, err = retry(func() (int, error) {
			return unix.Openat(s.fd(), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, uint32(mode.Perm()))
		})
	}
	if err == nil {
		err = errors.Join(unix.Fchmod(fd, uint32(mode.Perm())), unix.Close(fd))
	}
	return s.fail("create", name, err)
}

// Remove takes the name away.
func (s *Shelf) Remove(name string) error {
	err := single(name)
	if err == nil {
		err = retryErr(func() error { return unix.Unlinkat(s.fd(), name, 0) })
	}
	return s.fail("remove", name, err)
}

// RemoveSame takes the name away if it is that of this file: it is no error when
// the name is gone or another file's.
func (s *Shelf) RemoveSame(name string, ino uint64) error {
	st, err := s.Stat(name)
	if err == nil && st.Ino == ino {
		err = s.Remove(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Link gives the file a second name on another shelf; fs.ErrExist when it is taken.
func (s *Shelf) Link(name string, to *Shelf, as string) error {
	err := errors.Join(single(name), single(as))
	if err == nil {
		err = retryErr(func() error { return unix.Linkat(s.fd(), name, to.fd(), as, 0) })
	}
	return s.fail("link", name, err)
}

// Move renames the file to another shelf; fs.ErrExist when the name is taken.
func (s *Shelf) Move(name string, to *Shelf, as string) error {
	err := errors.Join(single(name), single(as))
	if err != nil {
		return s.fail("move", name, err)
	}
	err = retryErr(func() error { return unix.Renameat2(s.fd(), name, to.fd(), as, unix.RENAME_NOREPLACE) })
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// A file system that only knows the old rename: look first.
		if _, there := to.Stat(as); there == nil {
			err = fs.ErrExist
		} else {
			err = retryErr(func() error { return unix.Renameat(s.fd(), name, to.fd(), as) })
		}
	}
	return s.fail("move", name, err)
}

func (s *Shelf) open(name string, flags int) (*os.File, error) {
	if err := single(name); err != nil {
		return nil, s.fail("open", name, err)
	}
	fd, err := retry(func() (int, error) {
		return unix.Openat(s.fd(), name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	})
	if err != nil {
		return nil, s.fail("open", name, err)
	}
	return os.NewFile(uintptr(fd), s.name+"/"+name), nil
}

func (s *Shelf) fd() int { return int(s.dir.Fd()) }

func (s *Shelf) fail(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: s.name + "/" + name, Err: err}
}

// single refuses names that lead elsewhere.
func single(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%q is not a single name", name)
	}
	return nil
}

// retry repeats what a signal interrupted, as package os does.
func retry[T any](call func() (T, error)) (T, error) {
	for {
		if v, err := call(); !errors.Is(err, unix.EINTR) {
			return v, err
		}
	}
}

func retryErr(call func() error) error {
	_, err := retry(func() (struct{}, error) { return struct{}{}, call() })
	return err
}

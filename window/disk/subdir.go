package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/sys"
)

// Subdir is one flat directory within a Dir, opened once. Each operation costs one system call and
// cannot leave the directory: names are single, and links are not followed.
type Subdir struct {
	name string
	mode fs.FileMode // requested mode
	dir  *os.File
}

// Stat is what a Subdir reports about a file.
type Stat struct {
	Ino   uint64 // identifies the file under any name
	Links int    // number of names
	Size  int64
	Dir   bool
	Odd   bool  // neither a regular file nor a directory: a link, a FIFO, a socket, a device
	Time  int64 // modification time, in nanoseconds since 1970
	Dirs  int64 // of a walked tree: bytes of its directories except its own, including those of the second links
}

// Open opens a specific file for reading: a regular file with that inode on the directory's file
// system and that size, last modified at changed (nanoseconds since 1970; 0: any time). Otherwise
// it returns an error that is fs.ErrNotExist, because the file is lost. It follows no link and
// never blocks.
func (s *Subdir) Open(name string, ino uint64, size, changed int64) (*os.File, error) {
	file, err := s.open(name, unix.O_RDONLY)
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, sys.OpenedSocket): // a link, a socket
		return nil, s.fail("open", name, &changedError{"not a regular file"})
	case err != nil:
		return nil, err
	}
	var st, dir unix.Stat_t
	err = errors.Join(retryErr(func() error { return unix.Fstat(int(file.Fd()), &st) }), retryErr(func() error { return unix.Fstat(s.fd(), &dir) }))
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = &changedError{"not a regular file"}
	case st.Ino != ino || st.Dev != dir.Dev:
		err = &changedError{fmt.Sprintf("it was replaced (inode %d, want %d)", st.Ino, ino)}
	case st.Size != size:
		err = &changedError{fmt.Sprintf("it has %d bytes, want %d", st.Size, size)}
	case changed != 0 && st.Mtim.Nano() != changed:
		err = &changedError{"it was modified"}
	default:
		return file, nil
	}
	return nil, errors.Join(s.fail("open", name, err), file.Close())
}

// changedError reports that another program changed a file.
type changedError struct{ reason string }

func (e *changedError) Error() string { return "changed by another program: " + e.reason }

// Is makes it an fs.ErrNotExist: the original file is lost.
func (e *changedError) Is(target error) bool { return target == fs.ErrNotExist }

// Subdir creates the directory if needed, sets its mode regardless of the umask, and opens it. It
// cannot change the mode of a directory of another user, and returns an error.
func (f *Dir) Subdir(name string, mode fs.FileMode) (*Subdir, error) {
	if err := f.root.MkdirAll(name, 0o755); err != nil {
		return nil, err
	}
	info, err := f.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	const bits = fs.ModePerm | fs.ModeSticky
	if info.IsDir() && info.Mode()&bits != mode&bits {
		if err := f.root.Chmod(name, mode); err != nil {
			return nil, fmt.Errorf("%w: readers need mode %v there; change it, or remove the directory", err, mode)
		}
	}
	dir, err := openDir(f.root, name)
	if err != nil {
		return nil, err
	}
	return &Subdir{name, mode, dir}, nil
}

// openDir opens a directory below root without following a link.
func openDir(root *os.Root, name string) (*os.File, error) {
	up, base, err := parent(root, name)
	if err != nil {
		return nil, err
	}
	defer up.Close() // opened for its name
	fd, err := retry(func() (int, error) {
		return unix.Openat(int(up.Fd()), base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// ReadDir lists a directory below root. Any other object, such as a FIFO, on which an open would
// block, is an error.
func ReadDir(root *os.Root, name string) ([]fs.DirEntry, error) {
	dir, err := openDir(root, name)
	if err != nil {
		return nil, err
	}
	defer dir.Close() // opened for reading
	return dir.ReadDir(-1)
}

// Keep registers directories whose modes Mend restores.
func (f *Dir) Keep(shelves ...*Subdir) { f.subdirs = append(f.subdirs, shelves...) }

// Sub opens a subdirectory without changing its mode.
func (s *Subdir) Sub(name string) (*Subdir, error) {
	dir, err := s.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return &Subdir{name: s.name + "/" + name, dir: dir}, nil
}

// Name returns the path within the Dir.
func (s *Subdir) Name() string { return s.name }

// Close closes the directory.
func (s *Subdir) Close() error { return s.dir.Close() }

// Names returns the names in the directory, unsorted.
func (s *Subdir) Names() ([]string, error) {
	// A new descriptor, so that concurrent calls do not share an offset.
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

// Stat describes a file. It returns fs.ErrNotExist if there is none.
func (s *Subdir) Stat(name string) (Stat, error) {
	var st unix.Stat_t
	err := single(name)
	if err == nil {
		err = retryErr(func() error { return unix.Fstatat(s.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	}
	if err != nil {
		return Stat{}, s.fail("stat", name, err)
	}
	kind := st.Mode & unix.S_IFMT
	return Stat{
		Ino: st.Ino, Links: int(st.Nlink), Size: st.Size, Time: st.Mtim.Nano(), // Nlink's type depends on the architecture
		Dir: kind == unix.S_IFDIR, Odd: kind != unix.S_IFDIR && kind != unix.S_IFREG,
	}, nil
}

// Is reports whether the name exists and belongs to this file.
func (s *Subdir) Is(name string, ino uint64) (bool, error) {
	st, err := s.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && st.Ino == ino, err
}

// Create creates an empty file. An existing file is an error.
func (s *Subdir) Create(name string, mode fs.FileMode) error {
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

// Remove removes the name.
func (s *Subdir) Remove(name string) error {
	err := single(name)
	if err == nil {
		err = retryErr(func() error { return unix.Unlinkat(s.fd(), name, 0) })
	}
	return s.fail("remove", name, err)
}

// RemoveSame removes the name if it belongs to this file. It is not an error if the name is missing
// or belongs to another file.
func (s *Subdir) RemoveSame(name string, ino uint64) error {
	st, err := s.Stat(name)
	if err == nil && st.Ino == ino {
		err = s.Remove(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Link creates a second name in another directory. It returns fs.ErrExist if the name is taken.
func (s *Subdir) Link(name string, to *Subdir, as string) error {
	err := errors.Join(single(name), single(as))
	if err == nil {
		err = retryErr(func() error { return unix.Linkat(s.fd(), name, to.fd(), as, 0) })
	}
	return s.fail("link", name, err)
}

// Move renames the file to another directory. It returns fs.ErrExist if the name is taken.
func (s *Subdir) Move(name string, to *Subdir, as string) error {
	err := errors.Join(single(name), single(as))
	if err != nil {
		return s.fail("move", name, err)
	}
	return s.fail("move", name, renameNew(s.dir, name, to.dir, as))
}

func (s *Subdir) open(name string, flags int) (*os.File, error) {
	if err := single(name); err != nil {
		return nil, s.fail("open", name, err)
	}
	open := func() (int, error) {
		return unix.Openat(s.fd(), name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	}
	fd, err := retry(open)
	if errors.Is(err, unix.EACCES) && s.mend(name) {
		fd, err = retry(open)
	}
	if err != nil {
		return nil, s.fail("open", name, err)
	}
	return os.NewFile(uintptr(fd), s.name+"/"+name), nil
}

// mend makes a file or directory accessible to its owner after another program changed the mode. It
// returns false if this user is not the owner.
func (s *Subdir) mend(name string) bool {
	var st unix.Stat_t
	err := retryErr(func() error { return unix.Fstatat(s.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil || int(st.Uid) != os.Geteuid() {
		return false
	}
	mode := sys.Mode(&st) & 0o7777
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= 0o700
	case unix.S_IFREG:
		mode |= 0o444
	default:
		return false
	}
	// On kernels before 6.6 this follows a link that was created just now. It then changes the mode
	// of a file that this user owns, and reads nothing of it.
	err = unix.Fchmodat(s.fd(), name, mode, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOTSUP) {
		err = unix.Fchmodat(s.fd(), name, mode, 0)
	}
	return err == nil
}

// sysMode converts a mode to the kernel's bits.
func sysMode(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	if mode&fs.ModeSticky != 0 {
		bits |= unix.S_ISVTX
	}
	return bits
}

func (s *Subdir) fd() int { return int(s.dir.Fd()) }

func (s *Subdir) fail(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: s.name + "/" + name, Err: err}
}

// single returns an error for a name that is not a single path element.
func single(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%q is not a single name", name)
	}
	return nil
}

// retry repeats a call that a signal interrupted, as package os does.
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

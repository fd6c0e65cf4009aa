package disk

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/sys"
)

// Small files, such as records and locks, lie in directories in which others may write: readers of
// another user, other containers of the pod, other tools. The name of such a file may be a link to
// a file that only stager can read, a FIFO that blocks forever, a hard link to another file, or a
// file that exhausts the memory. So these functions follow no link at the last name, never block on
// an object that is not a file, read at most as much as the caller allows, and write to a new file
// that is then renamed.

// Limit is the maximum number of bytes that are read of a record.
const Limit = 1 << 20

// NotRegularError is returned if an object is not a regular file.
type NotRegularError struct {
	Path string
	Mode fs.FileMode
}

func (e *NotRegularError) Error() string {
	return fmt.Sprintf("%s: not a regular file (%s); remove it", e.Path, e.Mode.Type())
}

// TooLargeError is returned if a small file exceeds the limit.
type TooLargeError struct {
	Path  string
	Limit int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s: larger than the limit of %d bytes; remove it", e.Path, e.Limit)
}

// OpenFile opens a regular file below root with flags of os.OpenFile. It follows no link at the
// last name and never blocks. It returns a *NotRegularError for any other object, and removes
// nothing.
func OpenFile(root *os.Root, name string, flags int, perm fs.FileMode) (*os.File, error) {
	dir, base, err := parent(root, name)
	if err != nil {
		return nil, err
	}
	defer dir.Close() // opened for its name
	return openAt(dir, base, name, flags, perm)
}

// OpenPath opens a regular file for reading, as OpenFile does.
func OpenPath(name string) (*os.File, error) {
	root, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	defer root.Close() // opened for its name
	return OpenFile(root, filepath.Base(name), os.O_RDONLY, 0)
}

// openAt is OpenFile for a single name in an open directory.
func openAt(dir *os.File, base, name string, flags int, perm fs.FileMode) (*os.File, error) {
	if flags&os.O_TRUNC != 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid} // would truncate before the checks
	}
	const safe = unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK
	fd, err := retry(func() (int, error) {
		return unix.Openat(int(dir.Fd()), base, flags|safe, uint32(perm.Perm()))
	})
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, &NotRegularError{name, fs.ModeSymlink}
	case errors.Is(err, unix.ENXIO), errors.Is(err, sys.OpenedSocket): // a FIFO without a reader, or a socket
		return nil, &NotRegularError{name, fs.ModeIrregular}
	case errors.Is(err, unix.EISDIR):
		return nil, &NotRegularError{name, fs.ModeDir}
	case err != nil:
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	file := os.NewFile(uintptr(fd), name)
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &NotRegularError{name, info.Mode()}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// OpenOwn opens a file that only stager writes, and creates it if needed. It removes and recreates
// an object of that name that cannot be that file: a link, a FIFO, or a hard link to another file.
func OpenOwn(root *os.Root, name string, flags int, perm fs.FileMode) (*os.File, error) {
	dir, base, err := parent(root, name)
	if err != nil {
		return nil, err
	}
	defer dir.Close() // opened for its name
	return openOwnAt(dir, base, name, flags, perm)
}

func openOwnAt(dir *os.File, base, name string, flags int, perm fs.FileMode) (*os.File, error) {
	for try := 0; ; try++ {
		file, err := openAt(dir, base, name, flags|os.O_CREATE, perm)
		own := false
		if err == nil {
			if own, err = isOwn(file); err != nil { // it may be stager's own, so nothing is removed
				return nil, errors.Join(err, file.Close())
			}
		}
		if own || try == 3 {
			return file, err
		}
		var odd *NotRegularError
		switch {
		case err == nil:
			err = file.Close()
		case errors.As(err, &odd):
			err = nil
		}
		if err == nil {
			err = removeAt(dir, base)
		}
		if errors.As(err, &odd) {
			odd.Path = name
		}
		if err != nil {
			return nil, err
		}
	}
}

// isOwn reports whether a file has only the name by which it was opened.
func isOwn(file *os.File) (bool, error) {
	var st unix.Stat_t
	if err := retryErr(func() error { return unix.Fstat(int(file.Fd()), &st) }); err != nil {
		return false, &fs.PathError{Op: "stat", Path: file.Name(), Err: err}
	}
	return st.Nlink <= 1, nil
}

// removeAt removes an object, including an empty directory. A missing name is not an error. A
// directory with content is a *NotRegularError.
func removeAt(dir *os.File, base string) error {
	err := retryErr(func() error { return unix.Unlinkat(int(dir.Fd()), base, 0) })
	if errors.Is(err, sys.UnlinkedDir) {
		err = retryErr(func() error { return unix.Unlinkat(int(dir.Fd()), base, unix.AT_REMOVEDIR) })
	}
	switch {
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST):
		return &NotRegularError{base, fs.ModeDir}
	}
	return &fs.PathError{Op: "remove", Path: base, Err: err}
}

// ReadSmall returns the content of a file of at most limit bytes. It returns an error that is
// fs.ErrNotExist if there is none, a *NotRegularError or a *TooLargeError.
func ReadSmall(root *os.Root, name string, limit int64) ([]byte, error) {
	file, err := OpenFile(root, name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close() // opened for reading
	info, err := file.Stat()
	if err == nil && info.Size() > limit {
		err = &TooLargeError{name, limit}
	}
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = &TooLargeError{name, limit}
	}
	if err != nil {
		return nil, err
	}
	return text, nil
}

// Durable is whether a file must survive a loss of power.
type Durable bool

// ReplaceSmall atomically replaces a file by a new one with this content: readers see either the
// old or the new file. It does not open the old object.
func ReplaceSmall(root *os.Root, name string, data []byte, perm fs.FileMode, durable Durable) error {
	file, err := Replacement(root, name, perm)
	if err != nil {
		return err
	}
	if _, err = file.Write(data); err == nil && bool(durable) {
		err = file.Sync()
	}
	if err == nil {
		err = file.Commit()
	}
	if err == nil && bool(durable) {
		err = file.SyncName()
	}
	return errors.Join(err, file.Close())
}

// Replacing is a new file that is to replace the object of a name.
type Replacing struct {
	*os.File
	dir        *os.File
	temporary  string
	base, name string
}

// Replacement creates a file that Commit renames to name. Its temporary name is unique among all
// processes. The caller calls Close, with or without Commit.
func Replacement(root *os.Root, name string, perm fs.FileMode) (*Replacing, error) {
	dir, base, err := parent(root, name)
	if err != nil {
		return nil, err
	}
	r := &Replacing{dir: dir, temporary: base + ".new-" + Unique(), base: base, name: name}
	if r.File, err = openAt(dir, r.temporary, name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, perm); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return r, nil
}

// Commit renames the file. The file stays open.
func (r *Replacing) Commit() error {
	err := retryErr(func() error { return unix.Renameat(int(r.dir.Fd()), r.temporary, int(r.dir.Fd()), r.base) })
	return r.committed(err)
}

// CommitNew renames the file unless the name is taken: it then returns an error that is
// fs.ErrExist.
func (r *Replacing) CommitNew() error {
	return r.committed(renameNew(r.dir, r.temporary, r.dir, r.base))
}

func (r *Replacing) committed(err error) error {
	if errors.Is(err, unix.EISDIR) {
		return &NotRegularError{r.name, fs.ModeDir}
	}
	if err != nil {
		return &fs.PathError{Op: "replace", Path: r.name, Err: err}
	}
	r.temporary = ""
	return nil
}

// SyncName syncs the new name to the disk.
func (r *Replacing) SyncName() error { return r.dir.Sync() }

// Close closes the file, and removes it if it was not committed.
func (r *Replacing) Close() (err error) {
	if r.temporary != "" {
		err = removeAt(r.dir, r.temporary)
	}
	return errors.Join(err, r.dir.Close(), r.File.Close())
}

// Detach returns the committed file, open, and releases everything else. It replaces Close.
func (r *Replacing) Detach() (*os.File, error) { return r.File, r.dir.Close() }

// renameNew renames a file or directory. If the name is taken, it returns an error that is
// fs.ErrExist.
func renameNew(from *os.File, old string, to *os.File, name string) error {
	err := retryErr(func() error {
		return sys.RenameNew(int(from.Fd()), old, int(to.Fd()), name)
	})
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	// The file system supports only plain rename. A link never replaces anything.
	err = retryErr(func() error { return unix.Linkat(int(from.Fd()), old, int(to.Fd()), name, 0) })
	switch {
	case err == nil:
		return retryErr(func() error { return unix.Unlinkat(int(from.Fd()), old, 0) })
	case errors.Is(err, fs.ErrExist):
		return err
	}
	// A directory, or a file system without links: check first.
	var st unix.Stat_t
	if retryErr(func() error { return unix.Fstatat(int(to.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) }) == nil {
		return fs.ErrExist
	}
	return retryErr(func() error { return unix.Renameat(int(from.Fd()), old, int(to.Fd()), name) })
}

// parent opens the parent directory of a name below root.
func parent(root *os.Root, name string) (dir *os.File, base string, err error) {
	base = path.Base(name)
	if !fs.ValidPath(name) || base == "." {
		return nil, "", &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	dir, err = root.OpenFile(path.Dir(name), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	return dir, base, tree{root: root}.named(path.Dir(name), err)
}

// Unique returns a random string for names that no other process creates.
func Unique() string {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// SyncNames syncs the names in a directory below root to the disk. It ignores that a file system
// does not support this.
func SyncNames(root *os.Root, dir string) error {
	file, err := root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return tree{root: root}.named(dir, err)
	}
	if err = file.Sync(); errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, file.Close())
}

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
)

// Small files, such as records and locks, lie in directories where others may write:
// readers of another user, other containers of the pod, other tools. What has the name of
// such a file may be a link to a file that only stager can read, a FIFO that never
// answers, a second name of somebody's file, or a file that fills the memory. So these
// functions follow no link at the last name, never wait for what is no file, read at most
// as much as the caller allows, and write by a new file and a rename.

// Limit is how many bytes of a record are read at most.
const Limit = 1 << 20

// NotRegularError says that something other than a file has the name of one.
type NotRegularError struct {
	Path string
	Mode fs.FileMode
}

func (e *NotRegularError) Error() string {
	return fmt.Sprintf("%s: not a regular file (%s); remove it", e.Path, e.Mode.Type())
}

// TooLargeError says that a small file has more bytes than its reader allows.
type TooLargeError struct {
	Path  string
	Limit int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s: larger than the %d bytes that are read of it; remove it", e.Path, e.Limit)
}

// OpenFile opens a regular file below root with flags of os.OpenFile. It follows no link
// at the last name and never blocks. It returns a *NotRegularError for all that is no
// file, and removes nothing.
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
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid} // it would empty what it has not looked at
	}
	const safe = unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK
	fd, err := retry(func() (int, error) {
		return unix.Openat(int(dir.Fd()), base, flags|safe, uint32(perm.Perm()))
	})
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, &NotRegularError{name, fs.ModeSymlink}
	case errors.Is(err, unix.ENXIO): // a FIFO without a reader, or a socket
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

// OpenOwn opens a file that only stager writes, and makes it if need be. What has its
// name and cannot be that file is removed, and made anew: a link, a FIFO, or a second
// name of a file that lies elsewhere.
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
		if err == nil && isOwn(file) || try == 3 {
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
		if err != nil {
			return nil, err
		}
	}
}

// isOwn tells whether a file has no other name than the one that it was opened by.
func isOwn(file *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(file.Fd()), &st) == nil && st.Nlink <= 1
}

// removeAt removes what has a name: also an empty directory, for nothing else may be there.
func removeAt(dir *os.File, base string) error {
	err := retryErr(func() error { return unix.Unlinkat(int(dir.Fd()), base, 0) })
	if errors.Is(err, unix.EISDIR) {
		err = retryErr(func() error { return unix.Unlinkat(int(dir.Fd()), base, unix.AT_REMOVEDIR) })
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return &fs.PathError{Op: "remove", Path: base, Err: err}
}

// ReadSmall reads a whole file of at most limit bytes. It returns an error that is
// fs.ErrNotExist when there is none, a *NotRegularError or a *TooLargeError.
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

// Durable says whether a file must outlive a loss of power.
type Durable bool

// ReplaceSmall gives a name a new file with these bytes, in one step: whoever reads
// sees the file of before or the new one. What has the name is not looked at.
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

// Replacing is a file that is to get a name, in place of what has it.
type Replacing struct {
	*os.File
	dir        *os.File
	temporary  string
	base, name string
}

// Replacement makes a file that Commit gives the name. Its temporary name is one that no
// other process can have. The caller closes it, with or without Commit.
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

// Commit gives the file its name. The file stays open.
func (r *Replacing) Commit() error {
	err := retryErr(func() error { return unix.Renameat(int(r.dir.Fd()), r.temporary, int(r.dir.Fd()), r.base) })
	return r.committed(err)
}

// CommitNew gives the file its name unless something has it: then it returns an error that
// is fs.ErrExist.
func (r *Replacing) CommitNew() error {
	return r.committed(renameNew(r.dir, r.temporary, r.dir, r.base))
}

func (r *Replacing) committed(err error) error {
	if err != nil {
		return &fs.PathError{Op: "replace", Path: r.name, Err: err}
	}
	r.temporary = ""
	return nil
}

// SyncName returns when the disk has the name that Commit gave.
func (r *Replacing) SyncName() error { return r.dir.Sync() }

// Close removes the file if it has not got its name, and closes it.
func (r *Replacing) Close() (err error) {
	if r.temporary != "" {
		err = removeAt(r.dir, r.temporary)
	}
	return errors.Join(err, r.dir.Close(), r.File.Close())
}

// Detach is Close for a file that has its name and stays open: it returns the file.
func (r *Replacing) Detach() (*os.File, error) { return r.File, r.dir.Close() }

// renameNew renames a file or directory to a name that nothing has, or returns an error
// that is fs.ErrExist.
func renameNew(from *os.File, old string, to *os.File, name string) error {
	err := retryErr(func() error {
		return unix.Renameat2(int(from.Fd()), old, int(to.Fd()), name, unix.RENAME_NOREPLACE)
	})
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	// A file system that knows only the old rename. A link never replaces anything.
	err = retryErr(func() error { return unix.Linkat(int(from.Fd()), old, int(to.Fd()), name, 0) })
	switch {
	case err == nil:
		return retryErr(func() error { return unix.Unlinkat(int(from.Fd()), old, 0) })
	case errors.Is(err, fs.ErrExist):
		return err
	}
	// A directory, or no links either: look first.
	var st unix.Stat_t
	if retryErr(func() error { return unix.Fstatat(int(to.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) }) == nil {
		return fs.ErrExist
	}
	return retryErr(func() error { return unix.Renameat(int(from.Fd()), old, int(to.Fd()), name) })
}

// parent opens the directory of a name below root.
func parent(root *os.Root, name string) (dir *os.File, base string, err error) {
	base = path.Base(name)
	if !fs.ValidPath(name) || base == "." {
		return nil, "", &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	dir, err = root.OpenFile(path.Dir(name), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	return dir, base, tree{root}.named(path.Dir(name), err)
}

// Unique is a part for names that no other process makes.
func Unique() string {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// SyncNames returns when the disk has the names in a directory below root. A file system
// that knows no sync of directories is passed over.
func SyncNames(root *os.Root, dir string) error {
	file, err := root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return tree{root}.named(dir, err)
	}
	if err = file.Sync(); errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		err = nil
	}
	return errors.Join(err, file.Close())
}

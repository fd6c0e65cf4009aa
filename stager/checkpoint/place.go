package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/sys"
	"github.com/stager-dev/stager/window/disk"
)

// identity distinguishes two states of a file without reading it.
type identity struct {
	Dev   uint64 `json:"dev"`
	Inode uint64 `json:"inode"`
	Size  int64  `json:"size"`
	MTime int64  `json:"mtime"` // nanoseconds, like CTime
	CTime int64  `json:"ctime"` // 0: unknown
}

func identityOf(st *unix.Stat_t) identity {
	return identity{uint64(st.Dev), st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()} // the type of Dev differs between architectures
}

// identityOfFile returns the identity of an open file. The error names the file.
func identityOfFile(file *os.File) (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return identity{}, &fs.PathError{Op: "stat", Path: file.Name(), Err: err}
	}
	return identityOf(&st), nil
}

// same reports whether two identities describe one file with the same contents. It ignores the
// change time, because a rename changes it. It ignores the device number, because that may change
// when a file system is mounted again.
func (i identity) same(other identity) bool {
	i.CTime, other.CTime = 0, 0
	i.Dev, other.Dev = 0, 0
	return i == other
}

// place renames files below a directory through file descriptors. It never follows a symbolic
// link, even one that appears during the operation.
type place struct {
	root *os.File
	path string   // of dir
	dir  *os.File // most recently opened
}

func openPlace(root *os.Root) (*place, error) {
	dir, err := disk.OpenDir(root)
	return &place{root: dir}, err
}

func (p *place) close() {
	p.forget()
	_ = p.root.Close() // opened for lookups only
}

func (p *place) forget() {
	if p.dir != nil {
		_ = p.dir.Close() // opened for lookups only
	}
	p.dir, p.path = nil, ""
}

// obstacleError reports an entry in the place of a directory.
type obstacleError struct{ path, what string }

func (e *obstacleError) Error() string {
	return fmt.Sprintf("%s is %s, and a directory goes there", e.path, e.what)
}

// parent opens the directory of a file. With create it makes missing directories. The descriptor
// is valid until the next call. The error is fs.ErrNotExist or an *obstacleError.
func (p *place) parent(name string, create bool) (int, error) {
	dir := path.Dir(name)
	if dir == "." {
		return int(p.root.Fd()), nil
	}
	if p.dir != nil && p.path == dir {
		return int(p.dir.Fd()), nil
	}
	p.forget()
	at, opened := int(p.root.Fd()), (*os.File)(nil)
	for part := range strings.SplitSeq(dir, "/") {
		fd, err := openDir(at, part, create)
		if opened != nil {
			_ = opened.Close() // opened for lookups only
		}
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			return -1, p.obstacle(dir)
		}
		if err != nil {
			return -1, &fs.PathError{Op: "open", Path: dir, Err: err}
		}
		at, opened = fd, os.NewFile(uintptr(fd), dir)
	}
	p.dir, p.path = opened, dir
	return at, nil
}

func openDir(at int, name string, create bool) (int, error) {
	open := func() (int, error) {
		return unix.Openat(at, name, sys.ForName|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	fd, err := open()
	if errors.Is(err, fs.ErrNotExist) && create {
		if err = unix.Mkdirat(at, name, 0o755); err == nil || errors.Is(err, fs.ErrExist) {
			fd, err = open()
		}
	}
	return fd, err
}

// obstacle finds the component of a path that is not a directory.
func (p *place) obstacle(dir string) error {
	for i := range dir + "/" {
		if i < len(dir) && dir[i] != '/' {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstatat(int(p.root.Fd()), dir[:i], &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			break
		}
		if kind := st.Mode & unix.S_IFMT; kind == unix.S_IFLNK {
			return &obstacleError{dir[:i], "a symbolic link"}
		} else if kind != unix.S_IFDIR {
			return &obstacleError{dir[:i], "a file"}
		}
	}
	return &obstacleError{dir, "no directory"}
}

// stat returns the state of an entry. The error is fs.ErrNotExist also when the directory is
// missing.
func (p *place) stat(name string) (st unix.Stat_t, err error) {
	at, err := p.parent(name, false)
	if err == nil {
		if err = unix.Fstatat(at, path.Base(name), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			err = &fs.PathError{Op: "stat", Path: name, Err: err}
		}
	}
	return st, err
}

// open opens a regular file for reading.
func (p *place) open(name string) (*os.File, error) {
	at, err := p.parent(name, false)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Openat(at, path.Base(name), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	file := os.NewFile(uintptr(fd), name)
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("it is not a regular file")}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// move renames a file. The new name must be free, else the error is fs.ErrExist. It makes a
// missing target directory.
func (p *place) move(name string, to *place, as string) error {
	from, err := p.parent(name, false)
	if err != nil {
		return err
	}
	into := from
	if to != p || path.Dir(name) != path.Dir(as) {
		if to == p {
			to = &place{root: p.root}
			defer to.forget()
		}
		if into, err = to.parent(as, true); err != nil {
			return err
		}
	}
	if err := renameNew(from, path.Base(name), into, path.Base(as)); err != nil {
		return &fs.PathError{Op: "rename", Path: name, Err: err}
	}
	return nil
}

// renameNew renames to a name that must be free. Where the file system has no RENAME_NOREPLACE,
// it uses a hard link. Where it has no hard links either, it checks the name first, which is not
// atomic.
func renameNew(from int, name string, into int, as string) error {
	err := sys.RenameNew(from, name, into, as)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	err = unix.Linkat(from, name, into, as, 0)
	switch {
	case err == nil:
		return unix.Unlinkat(from, name, 0)
	case errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist):
		return err
	}
	var st unix.Stat_t
	if unix.Fstatat(into, as, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		return unix.EEXIST
	}
	return unix.Renameat(from, name, into, as)
}

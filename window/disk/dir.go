package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/sys"
)

// Private is the name of stager's own subdirectory. Only this package and package window write to
// it.
const Private = ".stager"

const incomingDir = Private + "/incoming"

// Dir is a directory that this process owns exclusively.
type Dir struct {
	path        string
	root        *os.Root
	private     *os.Root // Private; stays valid if another program renames it
	passing     bool     // inode numbers may change between mounts
	settled     bool     // the file system does not change modification times by itself
	incoming    *os.Root // incomingDir, opened once so that path lookups are short
	dir         *os.File // root and incoming as files, for renames between them
	incomingDir *os.File
	lock        *Lock
	writing     Writing
	subdirs     []*Subdir // for Mend
	hidden      bool      // Private is closed to other users
}

// BusyError is returned if another process owns the directory.
type BusyError struct{ Path, Holder string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("another stager uses %s: %s; stop it or use another directory", e.Path, e.Holder)
}

// Open creates the directory if needed and locks it for this process. Processes that try to open it
// meanwhile receive a *BusyError with holder.
func Open(path, holder string) (*Dir, error) {
	root, err := MakeRoot(path)
	if err != nil {
		return nil, err
	}
	f := &Dir{path: path, root: root}
	if err := f.open(holder); err != nil {
		if !strings.Contains(err.Error(), path) { // paths of a Root are relative
			err = fmt.Errorf("open %s: %w", path, err)
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *Dir) open(holder string) (err error) {
	if f.dir, err = OpenDir(f.root); err != nil {
		return err
	}
	kind := f.Kind()
	f.passing, f.settled = slices.Contains(reusing, kind), slices.Contains(settled, kind)
	if err := f.makeOwn(f.root, Private); err != nil {
		return err
	}
	if f.private, err = f.openOwn(f.root, Private); err != nil {
		return err
	}
	// If another program put something else there, remove it.
	const incoming = "incoming"
	if info, err := f.private.Lstat(incoming); err == nil && !info.IsDir() {
		if err := f.private.Remove(incoming); err != nil {
			return err
		}
	}
	if err := f.makeOwn(f.private, incoming); err != nil {
		return err
	}
	if f.incoming, err = f.openOwn(f.private, incoming); err != nil {
		return err
	}
	if f.lock, err = lockDir(f.private, f.path, holder); err != nil {
		return err
	}
	if err := f.sweepReplacements(); err != nil {
		return err
	}
	f.incomingDir, err = OpenDir(f.incoming)
	return err
}

// openOwn opens one of stager's own directories below root, without following a link. It refuses a
// directory of another user, who could put anything there.
func (f *Dir) openOwn(root *os.Root, name string) (*os.Root, error) {
	dir, err := root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	named, err := root.Lstat(name)
	var opened fs.FileInfo
	if err == nil {
		opened, err = dir.Stat(".")
	}
	if err == nil && !os.SameFile(named, opened) {
		err = &ChangedError{filepath.Join(f.path, name)}
	}
	if err == nil && !slices.Contains(mapping, f.Kind()) {
		if own, ok := opened.Sys().(*syscall.Stat_t); ok && int(own.Uid) != os.Geteuid() {
			err = &fs.PathError{Op: "open", Path: filepath.Join(f.path, name), Err: fmt.Errorf(
				"it belongs to user %d, and stager runs as %d: remove it, or use another directory (%w)", own.Uid, os.Geteuid(), fs.ErrPermission)}
		}
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// mapping lists the file systems on which a new file may belong to another user.
var mapping = append([]string{"nfs"}, reusing...)

// sweepReplacements removes temporary files of Private that a kill left behind. Only the holder of
// the lock creates any.
func (f *Dir) sweepReplacements() error {
	dir, err := OpenDir(f.private)
	if err != nil {
		return err
	}
	defer dir.Close() // opened for reading
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		if replacement.MatchString(name) {
			err = errors.Join(err, removeAt(dir, name))
		}
	}
	return err
}

// replacement matches the temporary names that Replacement creates.
var replacement = regexp.MustCompile(`^[a-z.]+\.new-[0-9a-f]{16}$`)

// makeOwn creates one of stager's own directories if needed. If another program changed its mode so
// that the owner cannot use it or others can write to it, makeOwn restores the mode.
func (f *Dir) makeOwn(root *os.Root, name string) error {
	if err := root.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := root.Lstat(name)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return &fs.PathError{Op: "open", Path: filepath.Join(f.path, name), Err: unix.ENOTDIR}
	}
	was, _, err := RestoreMode(root, name, func(mode fs.FileMode) fs.FileMode {
		if mode&0o722 == 0o700 {
			return mode
		}
		return f.privateMode()
	})
	if was&0o700 == 0o700 {
		err = nil // some file systems have a fixed mode for all directories
	}
	return err
}

// MakePrivate closes Private to other users, for a directory in which they may write. Do not call it
// for a directory that others only read: they may copy it, and the copy must not fail at Private.
func (f *Dir) MakePrivate() error {
	f.hidden = true
	return f.root.Chmod(Private, f.privateMode())
}

func (f *Dir) privateMode() fs.FileMode {
	if f.hidden {
		return 0o700
	}
	return 0o755
}

// Mend restores the modes of stager's own directories if another program changed them. It returns
// the number of restored directories.
func (f *Dir) Mend() (mended int, err error) {
	_, restored, err := RestoreMode(f.root, Private, func(mode fs.FileMode) fs.FileMode {
		if mode&0o700 == 0o700 {
			return mode
		}
		return f.privateMode()
	})
	if restored {
		mended++
	}
	mend := func(dir *os.File, name string, right func(mode uint32) bool, mode uint32) {
		var st unix.Stat_t
		fd := int(dir.Fd())
		if serr := retryErr(func() error { return unix.Fstat(fd, &st) }); serr != nil || right(sys.Mode(&st)&0o1777) {
			return
		}
		if merr := retryErr(func() error { return unix.Fchmod(fd, sys.Mode(&st)&0o6000|mode) }); merr != nil {
			err = errors.Join(err, &fs.PathError{Op: "change the mode of", Path: name, Err: merr})
			return
		}
		mended++
	}
	mend(f.incomingDir, incomingDir, func(mode uint32) bool { return mode&0o700 == 0o700 }, 0o755)
	for _, s := range f.subdirs {
		want := sysMode(s.mode)
		mend(s.dir, s.name, func(mode uint32) bool { return mode == want }, want)
	}
	return mended, err
}

// lockDir locks the private directory. The lock file is readable for all, so that a job that copies
// the directory as another user does not fail.
func lockDir(private *os.Root, path, holder string) (*Lock, error) {
	// Only a regular file can be locked. If it is a hard link to another program's file, the note
	// would overwrite that file.
	file, err := OpenFile(private, LockName, os.O_RDONLY, 0)
	own := false
	var odd *NotRegularError
	switch {
	case err == nil:
		own, err = isOwn(file)
		err = errors.Join(err, file.Close())
	case errors.As(err, &odd):
		err = nil
	case errors.Is(err, fs.ErrNotExist):
		own, err = true, nil
	case errors.Is(err, fs.ErrPermission): // its mode was changed
		own, err = true, private.Chmod(LockName, 0o644)
	}
	if err != nil {
		return nil, err
	}
	if !own {
		// A directory with content is somebody's, so only an empty one is removed.
		err := private.Remove(LockName)
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			err = &NotRegularError{Private + "/" + LockName, fs.ModeDir}
		}
		if err != nil {
			return nil, err
		}
	}
	return Acquire(private, path, holder, true)
}

// Path returns the directory's path as passed to Open.
func (f *Dir) Path() string { return f.path }

// Root returns the root of the directory.
func (f *Dir) Root() *os.Root { return f.root }

// Private returns the root of Private. It stays valid if another program renames Private.
func (f *Dir) Private() *os.Root { return f.private }

// Empty reports whether the directory contains nothing but Private.
func (f *Dir) Empty() (bool, error) {
	dir, err := OpenDir(f.root)
	if err != nil {
		return false, err
	}
	defer dir.Close() // opened for reading
	names, err := dir.Readdirnames(2)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return len(names) == 0 || len(names) == 1 && names[0] == Private, err
}

// Close releases the directory.
func (f *Dir) Close() error {
	err := f.root.Close()
	for _, root := range []*os.Root{f.private, f.incoming} {
		if root != nil {
			err = errors.Join(err, root.Close())
		}
	}
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
	}
	for _, dir := range []*os.File{f.dir, f.incomingDir} {
		if dir != nil {
			err = errors.Join(err, dir.Close())
		}
	}
	return err
}

// Free returns the number of bytes that the file system has free for this user.
func (f *Dir) Free() (int64, error) {
	on, err := sys.FileSystemOf(int(f.dir.Fd()))
	if err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: f.path, Err: err}
	}
	return on.Free, nil
}

// Kind returns the name of the file system, such as "nfs", or its magic number.
func (f *Dir) Kind() string {
	on, err := sys.FileSystemOf(int(f.dir.Fd()))
	if err != nil {
		return "unknown"
	}
	return on.Name
}

// OneName reports whether the file system takes names for the same that differ only in case.
func (f *Dir) OneName() bool {
	upper, err := f.private.Lstat(LockName)
	if err != nil {
		return false
	}
	lower, err := f.private.Lstat(strings.ToLower(LockName))
	return err == nil && os.SameFile(upper, lower)
}

// Sync returns when all files of the directory are on the disk. On Linux that is one call, which
// flushes the whole file system.
func (f *Dir) Sync() error {
	if err := sys.SyncTree(f.root, f.dir); err != nil {
		return &fs.PathError{Op: "syncfs", Path: f.path, Err: err}
	}
	return nil
}

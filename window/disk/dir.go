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
)

// Private is the directory's own corner, which nothing but this package and the
// window write to.
const Private = ".stager"

const incomingDir = Private + "/incoming"

// Dir is a directory that this process alone fills.
type Dir struct {
	path        string
	root        *os.Root
	private     *os.Root // Private, which somebody may rename
	passing     bool     // inode numbers may be others next time
	settled     bool     // modification times stay as they are
	incoming    *os.Root // incomingDir, so that each step of each file is a short way
	dir         *os.File // root, and incoming, to rename from one to the other
	incomingDir *os.File
	lock        *Lock
	writing     Writing
	subdirs     []*Subdir // for Mend
	hidden      bool      // Private, from other users
}

// BusyError says that another process fills the directory.
type BusyError struct{ Path, Holder string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("another stager works on %s: %s; end it or use another directory", e.Path, e.Holder)
}

// Open makes the directory if need be and takes it for this process. holder is what
// others are told who try meanwhile, in a *BusyError.
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
	// What somebody put there in the place of a directory is nobody's any more.
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

// openOwn opens a directory of stager's own below root, and not what a link at its name
// leads to. One that belongs to another user is refused: that user may put anything there.
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

// mapping are file systems on which what a user makes may belong to another one.
var mapping = append([]string{"nfs"}, reusing...)

// sweepReplacements removes files of Private that a kill left without their names. Only
// the holder of the lock makes any.
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

// replacement is what Replacement calls its files.
var replacement = regexp.MustCompile(`^[a-z.]+\.new-[0-9a-f]{16}$`)

// makeOwn makes a directory of stager's own if need be. One that its owner cannot use, or
// that others can write to, since somebody changed its mode, gets a mode again.
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
	case info.Mode().Perm()&0o722 == 0o700:
		return nil
	}
	err = root.Chmod(name, f.privateMode())
	if info.Mode().Perm()&0o700 == 0o700 {
		err = nil // some file systems have one mode for all directories
	}
	return err
}

// MakePrivate keeps other users out of Private: for directories in which others may write. A directory
// that is only read may be copied by whichever user, and must not stop them.
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

// Mend gives directories of stager's own their modes again, which a neighbour may have
// changed. It returns how many it mended.
func (f *Dir) Mend() (mended int, err error) {
	if info, serr := f.root.Lstat(Private); serr == nil && info.IsDir() && info.Mode().Perm()&0o700 != 0o700 {
		mended++
		err = f.root.Chmod(Private, f.privateMode())
	}
	mend := func(dir *os.File, name string, right func(mode uint32) bool, mode uint32) {
		var st unix.Stat_t
		fd := int(dir.Fd())
		if serr := retryErr(func() error { return unix.Fstat(fd, &st) }); serr != nil || right(st.Mode&0o1777) {
			return
		}
		if merr := retryErr(func() error { return unix.Fchmod(fd, st.Mode&0o6000|mode) }); merr != nil {
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

// lockDir locks the private directory. A job that copies the directory, as whichever
// user, can read the lock file.
func lockDir(private *os.Root, path, holder string) (*Lock, error) {
	// What is no file cannot be locked, and into a second name of somebody's file the note
	// would be written.
	file, err := OpenFile(private, LockName, os.O_RDONLY, 0)
	own := false
	var odd *NotRegularError
	switch {
	case err == nil:
		own = isOwn(file)
		err = file.Close()
	case errors.As(err, &odd):
		err = nil
	case errors.Is(err, fs.ErrNotExist):
		own, err = true, nil
	case errors.Is(err, fs.ErrPermission): // somebody changed its mode
		own, err = true, private.Chmod(LockName, 0o644)
	}
	if err != nil {
		return nil, err
	}
	if !own {
		if err := private.RemoveAll(LockName); err != nil {
			return nil, err
		}
	}
	return Acquire(private, path, holder, true)
}

// Path is the directory's path as it was given.
func (f *Dir) Path() string { return f.path }

// Root is the way to the files within.
func (f *Dir) Root() *os.Root { return f.root }

// Private is the way to the files of stager's own, also when somebody renames it.
func (f *Dir) Private() *os.Root { return f.private }

// Empty tells whether there is nothing in the directory but Private.
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

// Close gives the directory free.
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

// Free is how many bytes the file system has left for this user.
func (f *Dir) Free() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.dir.Fd()), &st); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: f.path, Err: err}
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// kinds are file systems by their magic number, as far as somebody may put a window
// there.
var kinds = map[int64]string{
	unix.NFS_SUPER_MAGIC: "nfs", unix.SMB_SUPER_MAGIC: "smb", unix.SMB2_SUPER_MAGIC: "smb", unix.CIFS_SUPER_MAGIC: "cifs",
	unix.FUSE_SUPER_MAGIC: "fuse", unix.CEPH_SUPER_MAGIC: "ceph", unix.V9FS_MAGIC: "9p", unix.OVERLAYFS_SUPER_MAGIC: "overlay",
	unix.TMPFS_MAGIC: "tmpfs", unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
}

// Kind names the file system: "nfs", or its number.
func (f *Dir) Kind() string {
	var st unix.Statfs_t
	if unix.Fstatfs(int(f.dir.Fd()), &st) != nil {
		return "unknown"
	}
	number := int64(st.Type) & 0xffffffff // its type differs by machine
	if name, known := kinds[number]; known {
		return name
	}
	return fmt.Sprintf("%#x", number)
}

// Sync returns when everything in the directory's file system is durable: one call for
// many files instead of one each.
func (f *Dir) Sync() error {
	if err := unix.Syncfs(int(f.dir.Fd())); err != nil {
		return &fs.PathError{Op: "syncfs", Path: f.path, Err: err}
	}
	return nil
}

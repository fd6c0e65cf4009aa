package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Private is the folder's own corner, which nothing but this package and the
// window write to.
const Private = ".stager"

const incomingDir = Private + "/incoming"

// Folder is a folder that this process alone fills.
type Folder struct {
	path        string
	root        *os.Root
	incoming    *os.Root // incomingDir, so that each step of each file is a short way
	dir         *os.File // root, and incoming, to rename from one to the other
	incomingDir *os.File
	lock        *Lock
	writing     Writing
}

// BusyError says that another process fills the folder.
type BusyError struct{ Path, Holder string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("another stager works on %s: %s; end it or use another folder", e.Path, e.Holder)
}

// Open makes the folder if need be and takes it for this process. holder is what
// others are told who try meanwhile, in a *BusyError.
func Open(path, holder string) (*Folder, error) {
	if err := os.MkdirAll(filepath.Join(path, incomingDir), 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	incoming, err := root.OpenRoot(incomingDir)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	lock, err := lockFolder(root, path, holder)
	if err != nil {
		return nil, errors.Join(err, incoming.Close(), root.Close())
	}
	f := &Folder{path: path, root: root, incoming: incoming, lock: lock}
	if f.dir, err = root.Open("."); err == nil {
		f.incomingDir, err = incoming.Open(".")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// lockFolder locks the private directory. A job that copies the folder, as whichever
// user, can read the lock file.
func lockFolder(root *os.Root, path, holder string) (*Lock, error) {
	private, err := root.OpenRoot(Private)
	if err != nil {
		return nil, err
	}
	defer private.Close() // the lock has a handle of its own
	return Acquire(private, path, holder, true)
}

// Path is the folder's path as it was given.
func (f *Folder) Path() string { return f.path }

// Root is the way to the files within.
func (f *Folder) Root() *os.Root { return f.root }

// Empty tells whether there is nothing in the folder but Private.
func (f *Folder) Empty() (bool, error) {
	dir, err := f.root.Open(".")
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

// Close gives the folder free.
func (f *Folder) Close() error {
	err := errors.Join(f.lock.Close(), f.incoming.Close(), f.root.Close())
	for _, dir := range []*os.File{f.dir, f.incomingDir} {
		if dir != nil {
			err = errors.Join(err, dir.Close())
		}
	}
	return err
}

// Free is how many bytes the file system has left for this user.
func (f *Folder) Free() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(f.path, &st); err != nil {
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
func (f *Folder) Kind() string {
	var st unix.Statfs_t
	if unix.Statfs(f.path, &st) != nil {
		return "unknown"
	}
	number := int64(st.Type) & 0xffffffff // its type differs by machine
	if name, known := kinds[number]; known {
		return name
	}
	return fmt.Sprintf("%#x", number)
}

// Sync returns when everything in the folder's file system is durable: one call for
// many files instead of one each.
func (f *Folder) Sync() error {
	dir, err := f.root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close() // opened for reading
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return &fs.PathError{Op: "syncfs", Path: f.path, Err: err}
	}
	return nil
}

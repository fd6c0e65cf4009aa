package disk

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/sys"
)

// State identifies a file and its version without reading it. Another file of the same name has
// another inode, and every change of content, mode or name sets the change time.
type State struct {
	Mode    fs.FileMode
	Size    int64
	ModTime time.Time
	Inode   uint64 // 0: the file system may change it between mounts
	Changed int64  // change time in nanoseconds; 0 if Inode is 0
}

// reusing lists file systems that invent inode numbers, which may change with a mount.
var reusing = []string{"fuse", "smb", "cifs", "9p"}

// State returns the state of a name within the directory. It does not follow a link.
func (f *Dir) State(name string) (State, error) {
	info, err := f.root.Lstat(name)
	if err != nil {
		return State{}, err
	}
	return f.stateOf(info), nil
}

// settled lists file systems that never change a modification time by themselves. A client of a
// network file system may see another time once the server has the last bytes.
var settled = []string{"tmpfs", "ext4", "xfs", "btrfs", "overlay"}

// Mark distinguishes a file from others of its name and size, also after a restart of this process
// and after renames and links. Another file has another inode, and a write changes the time. Values
// that the file system may change by itself are 0.
type Mark struct {
	Inode uint64
	Time  int64 // modification time, in nanoseconds since 1970
}

// Mark returns the Mark of a file from the values of its Stat or State.
func (f *Dir) Mark(ino uint64, changed int64) Mark {
	if f.passing {
		ino = 0
	}
	if !f.settled {
		changed = 0
	}
	return Mark{ino, changed}
}

// StateOf returns the state of an open file of the directory.
func (f *Dir) StateOf(file *os.File) (State, error) {
	info, err := file.Stat()
	if err != nil {
		return State{}, err
	}
	return f.stateOf(info), nil
}

func (f *Dir) stateOf(info fs.FileInfo) State {
	s := State{Mode: info.Mode(), Size: info.Size(), ModTime: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && !f.passing {
		s.Inode, s.Changed = st.Ino, sys.Changed(st).UnixNano()
	}
	return s
}

// statAt returns the state and the inode of a single name in an open directory.
func (f *Dir) statAt(dir *os.File, name string) (State, uint64, error) {
	var st unix.Stat_t
	err := retryErr(func() error { return unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil {
		return State{}, 0, err
	}
	s := State{Mode: modeOf(sys.Mode(&st)), Size: st.Size, ModTime: time.Unix(st.Mtim.Unix())}
	if !f.passing {
		s.Inode, s.Changed = st.Ino, st.Ctim.Nano()
	}
	return s, st.Ino, nil
}

// modeOf converts a mode of the kernel to an fs.FileMode, as far as a State needs it.
func modeOf(mode uint32) fs.FileMode {
	m := fs.FileMode(mode & 0o777)
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		m |= fs.ModeDir
	case unix.S_IFLNK:
		m |= fs.ModeSymlink
	default:
		m |= fs.ModeIrregular
	}
	return m
}

// A Replacer reports whether an object of that state may be replaced. nil: none may.
type Replacer func(State) bool

// ChangedError is returned if another program replaced an incoming file.
type ChangedError struct{ Path string }

func (e *ChangedError) Error() string {
	return e.Path + ": another program replaced the fetched file; run the command again"
}

// publish renames an incoming file. If the name is taken by an object that may not be replaced, the
// error is fs.ErrExist. ino is the inode of the file that was written: another inode is a
// *ChangedError. publish returns the State of the published file.
func (f *Dir) publish(incoming string, ino uint64, name string, may Replacer) (State, error) {
	to, base, err := f.directoryOf(name)
	if err != nil {
		return State{}, err
	}
	if to != f.dir {
		defer to.Close() // opened for its name
	}
	if _, now, err := f.statAt(f.incomingDir, incoming); err != nil || now != ino {
		return State{}, &ChangedError{path.Join(incomingDir, incoming)}
	}
	err = renameNew(f.incomingDir, incoming, to, base)
	if isTaken(err) && may != nil {
		err = f.replace(incoming, to, base, may)
	}
	if err != nil {
		return State{}, &os.LinkError{Op: "rename", Old: path.Join(incomingDir, incoming), New: name, Err: err}
	}
	state, now, err := f.statAt(to, base)
	if err != nil || now != ino {
		return State{}, &ChangedError{name}
	}
	return state, nil
}

// isTaken reports whether a rename failed because the name is taken.
func isTaken(err error) bool {
	return slices.Contains([]error{unix.EEXIST, fs.ErrExist, unix.EISDIR, unix.ENOTEMPTY}, err)
}

// replace replaces an object by an incoming file, if may allows it. It exchanges the two names. The
// old object can then be checked where no other program works, and is restored if it has changed
// meanwhile.
func (f *Dir) replace(incoming string, to *os.File, base string, may Replacer) error {
	before, ino, err := f.statAt(to, base)
	if err != nil {
		return err
	}
	if before.Mode.IsDir() || !may(before) {
		return unix.EEXIST
	}
	swap := func() error {
		return retryErr(func() error {
			return sys.Exchange(int(f.incomingDir.Fd()), incoming, int(to.Fd()), base)
		})
	}
	switch err := swap(); {
	case err == nil:
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return retryErr(func() error { return unix.Renameat(int(f.incomingDir.Fd()), incoming, int(to.Fd()), base) })
	default:
		return err
	}
	after, now, err := f.statAt(f.incomingDir, incoming)
	if err != nil {
		return err
	}
	if now != ino || after.Mode != before.Mode || after.Size != before.Size || !after.ModTime.Equal(before.ModTime) {
		if err := swap(); err != nil {
			return err
		}
		return unix.EEXIST
	}
	return retryErr(func() error { return unix.Unlinkat(int(f.incomingDir.Fd()), incoming, 0) })
}

// directoryOf opens the parent directory of a name within the directory, and creates it if needed.
// The caller closes it unless it is f.dir. The incoming file's directory is already open, so that a
// rename looks up only this path.
func (f *Dir) directoryOf(name string) (dir *os.File, base string, err error) {
	up, base := path.Dir(name), path.Base(name)
	if !fs.ValidPath(name) || base == "." {
		return nil, "", &fs.PathError{Op: "rename", Path: name, Err: fs.ErrInvalid}
	}
	if up == "." {
		return f.dir, base, nil
	}
	const flags = os.O_RDONLY | unix.O_DIRECTORY
	dir, err = f.root.OpenFile(up, flags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if err = f.root.MkdirAll(up, 0o755); err == nil {
			dir, err = f.root.OpenFile(up, flags, 0)
		}
	}
	return dir, base, err
}

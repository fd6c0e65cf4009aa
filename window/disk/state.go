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
)

// State tells a file from every other, and from itself after a change, without reading
// it: another file of this name has another inode, and every change of contents, mode or
// name sets the change time.
type State struct {
	Mode    fs.FileMode
	Size    int64
	ModTime time.Time
	Inode   uint64 // 0: the file system may name the same file otherwise next time
	Changed int64  // nanoseconds of the change time; 0 where Inode is
}

// reusing are file systems that make up inode numbers, which may be others after a mount.
var reusing = []string{"fuse", "smb", "cifs", "9p"}

// State describes what has a name within the directory, itself and not what a link there
// leads to.
func (f *Dir) State(name string) (State, error) {
	info, err := f.root.Lstat(name)
	if err != nil {
		return State{}, err
	}
	return f.stateOf(info), nil
}

// settled are file systems that change no file's modification time by themselves. A client
// of a server may see another time when the server has the last bytes.
var settled = []string{"tmpfs", "ext4", "xfs", "btrfs", "overlay"}

// Mark tells a file from others of its name and size, also after a restart of this process
// and however often it is renamed or linked: another file has another inode, and writing to
// it changes its time. What the file system may change by itself is 0.
type Mark struct {
	Inode uint64
	Time  int64 // of the last change of its content, in nanoseconds since 1970
}

// Mark is that of a file as a Shelf or a State describes it.
func (f *Dir) Mark(ino uint64, changed int64) Mark {
	if f.passing {
		ino = 0
	}
	if !f.settled {
		changed = 0
	}
	return Mark{ino, changed}
}

// StateOf describes an open file of the directory.
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
		s.Inode, s.Changed = st.Ino, st.Ctim.Nano()
	}
	return s
}

// statAt describes what has a single name in an open directory.
func (f *Dir) statAt(dir *os.File, name string) (State, uint64, error) {
	var st unix.Stat_t
	err := retryErr(func() error { return unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil {
		return State{}, 0, err
	}
	s := State{Mode: modeOf(st.Mode), Size: st.Size, ModTime: time.Unix(st.Mtim.Unix())}
	if !f.passing {
		s.Inode, s.Changed = st.Ino, st.Ctim.Nano()
	}
	return s, st.Ino, nil
}

// modeOf is a mode as package fs has it, as far as States need it.
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

// A Replacer says whether what has a name may be replaced. nil: nothing may.
type Replacer func(State) bool

// ChangedError says that a file on its way in is not the one that was written.
type ChangedError struct{ Path string }

func (e *ChangedError) Error() string {
	return e.Path + ": another program put another file in the place of what was fetched; run it again"
}

// publish gives an incoming file its name, unless something has it that may not be
// replaced: then the error is fs.ErrExist. It returns the state that the file has there.
// ino is that of the file which was written: another is no longer it.
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

// isTaken reports whether a name could not be given because something has it.
func isTaken(err error) bool {
	return slices.Contains([]error{unix.EEXIST, fs.ErrExist, unix.EISDIR, unix.ENOTEMPTY}, err)
}

// replace puts an incoming file in the place of what has a name, if that may be: both
// swap their names, so that what had the name can be looked at where nobody else works,
// and comes back when it is not what was seen.
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
			return unix.Renameat2(int(f.incomingDir.Fd()), incoming, int(to.Fd()), base, unix.RENAME_EXCHANGE)
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

// directoryOf opens the directory of a name within the directory, and makes it if need be.
// The caller closes it unless it is f.dir. The file on its way in is where it is known to
// be, so of both ways only this one is looked for.
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

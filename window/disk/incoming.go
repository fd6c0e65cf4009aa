package disk

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/sys"
)

// noteEvery is the number of bytes between two progress records: the most that a kill costs, per
// file. Files that are not larger have no records.
const noteEvery = 2 << 20

// notesLimit is the number of bytes of progress records that are read: enough for a file of 4 TiB.
const notesLimit = 128 << 20

// Incoming is a file that is being fetched. WriteAt and Missing are safe for concurrent use.
// Publish, Seal or Discard must follow all of their calls.
//
// Dir.Incoming opens or resumes it, and WriteAt fills it. The caller verifies it, with ReadAt if
// needed. Publish renames it to its final name, and Discard removes it. Seal is for files to be
// published later. Close closes it without publishing, so that it can be resumed.
type Incoming struct {
	dir     *Dir
	name    string // below incomingDir
	size    int64
	file    *File
	resumed bool

	began atomic.Pointer[time.Time] // time of the first byte; nil before

	mu      sync.Mutex // guards all fields below
	have    ranges
	notes   *os.File // nil until the first record
	pending []Range  // written but not recorded yet
	unnoted int64    // bytes of pending
	header  string
}

// Incoming opens a file to be published. id identifies it, such as by its key. Bytes that an
// earlier process received are kept if size and version are the same and the machine has not been
// rebooted: after a reboot, it is unknown which bytes had reached the disk.
//
// If Reserves(size) is true, the space is preallocated before Incoming returns, so that a full disk
// is reported here.
func (f *Dir) Incoming(id string, size int64, version string) (*Incoming, error) {
	in := &Incoming{dir: f, name: incomingName(id), size: size}
	if size > noteEvery {
		in.header = fmt.Sprintf("%d %q %s\n", size, version, bootID())
		in.have = in.readNotes()
	}
	if len(in.have) == 0 {
		if err := in.dropNotes(); err != nil {
			return nil, err
		}
	}
	file, had, err := f.openIncoming(in.name)
	if err != nil {
		return nil, err
	}
	in.file = &File{File: file}
	if len(in.have) > 0 && had != size {
		in.have = nil // another program changed it: start again
		if err := in.dropNotes(); err != nil {
			return nil, errors.Join(err, in.Discard())
		}
	}
	if len(in.have) == 0 && had > 0 {
		if err := file.Truncate(0); err != nil {
			return nil, errors.Join(err, in.Discard())
		}
	}
	in.resumed = len(in.have) > 0
	opened, err := f.writing.Open(f.incoming, in.name, file, size)
	if err != nil {
		return nil, errors.Join(err, in.Discard())
	}
	in.file = opened
	return in, nil
}

// incomingName returns the name below incomingDir of the file with that id.
func incomingName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// openIncoming opens a file directly below incomingDir for reading and writing, and returns its
// size in bytes. It creates the file if needed. It removes an object of that name that is not a
// regular file or has other names. os.Root would need more system calls, and would try to register
// the file with the poller like a socket. So would os.NewFile with a file that is open with O_NONBLOCK. Only an
// object that is already there needs that: it may be leased, or a device. Nearly all files are new.
func (f *Dir) openIncoming(name string) (file *os.File, size int64, err error) {
	const flags = unix.O_RDWR | unix.O_CREAT | unix.O_CLOEXEC | unix.O_NOFOLLOW
	open := func(more int) (int, error) {
		return retry(func() (int, error) { return unix.Openat(int(f.incomingDir.Fd()), name, flags|more, 0o644) })
	}
	if fd, err := open(unix.O_EXCL); err == nil {
		return os.NewFile(uintptr(fd), name), 0, nil
	}
	for try := 0; ; try++ {
		fd, err := open(unix.O_NONBLOCK)
		var st unix.Stat_t
		if err == nil {
			if err = retryErr(func() error { return unix.Fstat(fd, &st) }); err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink <= 1 {
				return os.NewFile(uintptr(fd), name), st.Size, nil
			}
			err = errors.Join(err, unix.Close(fd))
		}
		switch {
		case try == 3 && err == nil:
			err = &NotRegularError{path.Join(incomingDir, name), fs.ModeIrregular}
		case try == 3:
		case errors.Is(err, unix.EACCES):
			if mended, merr := f.mendIncoming(name); !mended {
				err = errors.Join(err, merr)
				break
			}
			continue
		case err == nil, errors.Is(err, unix.ELOOP), errors.Is(err, sys.OpenedSocket), errors.Is(err, unix.EISDIR):
			if err = f.incoming.RemoveAll(name); err == nil {
				continue
			}
		}
		return nil, 0, &fs.PathError{Op: "open", Path: path.Join(incomingDir, name), Err: err}
	}
}

// mendIncoming makes a file below incomingDir accessible to its owner again, if possible.
func (f *Dir) mendIncoming(name string) (bool, error) {
	mended, err := f.Mend()
	if mended > 0 || err != nil {
		return err == nil, err
	}
	return f.incoming.Chmod(name, 0o644) == nil, nil
}

// Size returns the size of the complete file in bytes.
func (in *Incoming) Size() int64 { return in.size }

// Resumed reports whether bytes of an earlier process are kept. No checksum covers them yet.
func (in *Incoming) Resumed() bool { return in.resumed }

// Began returns when the first byte was written since Dir.Incoming returned.
func (in *Incoming) Began() (at time.Time, began bool) {
	if first := in.began.Load(); first != nil {
		return *first, true
	}
	return at, false
}

// Missing returns the ranges that have not been written, ascending.
func (in *Incoming) Missing() []Range {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.have.missing(in.size)
}

// ReadAt reads bytes that have been written.
func (in *Incoming) ReadAt(p []byte, off int64) (int, error) { return in.file.ReadAt(p, off) }

// WriteAt writes received bytes. It refuses bytes beyond the size.
func (in *Incoming) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > in.size {
		return 0, fmt.Errorf("range %d to %d is outside a file of %d bytes", off, off+int64(len(p)), in.size)
	}
	if in.began.Load() == nil {
		now := time.Now()
		in.began.CompareAndSwap(nil, &now)
	}
	n, err := in.file.WriteAt(p, off)
	in.mu.Lock()
	defer in.mu.Unlock()
	arrived := Range{off, int64(n)}
	in.have = in.have.add(arrived)
	if in.size <= noteEvery {
		return n, err
	}
	if last := len(in.pending) - 1; last >= 0 && in.pending[last].End() == off {
		in.pending[last].Len += arrived.Len
	} else {
		in.pending = append(in.pending, arrived)
	}
	if in.unnoted += arrived.Len; in.unnoted >= noteEvery {
		err = errors.Join(err, in.noteLocked())
	}
	return n, err
}

// Publish renames the complete file to a name within the directory, sets its mode and modification
// time (zero: now), and creates the parent directories. It fails if bytes are missing. It replaces
// a file of that name.
func (in *Incoming) Publish(name string, mode fs.FileMode, modified time.Time) error {
	_, err := in.PublishNew(name, mode, modified, func(State) bool { return true })
	return err
}

// PublishNew is Publish for a name that may be taken. It replaces the object of that name only if
// may allows it, and otherwise returns fs.ErrExist. It returns the State of the published file.
func (in *Incoming) PublishNew(name string, mode fs.FileMode, modified time.Time, may Replacer) (State, error) {
	ino, err := in.ready(name, mode, modified)
	if err != nil {
		return State{}, err
	}
	state, err := in.dir.publish(in.name, ino, name, may)
	if err != nil {
		return State{}, err
	}
	// The file is published: progress records that remain are swept later.
	_ = in.Close()     // as above
	_ = in.dropNotes() // as above
	return state, nil
}

// Seal prepares the file like Publish and closes it. Dir.PublishSealed renames it later. Until then
// it can still be resumed, also by another process. Seal returns the file's inode number.
func (in *Incoming) Seal(mode fs.FileMode, modified time.Time) (ino uint64, err error) {
	if ino, err = in.ready("a file to be sealed", mode, modified); err != nil {
		return 0, err
	}
	return ino, in.Close()
}

// ready fails if bytes are missing, and sets mode and time. It returns the file's inode number.
func (in *Incoming) ready(name string, mode fs.FileMode, modified time.Time) (ino uint64, err error) {
	if missing := in.Missing(); len(missing) > 0 {
		return 0, fmt.Errorf("%s: %d ranges are missing, the first at byte %d", name, len(missing), missing[0].Off)
	}
	var st unix.Stat_t
	fd := int(in.file.Fd())
	if err := retryErr(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: path.Join(incomingDir, in.name), Err: err}
	}
	if st.Size != in.size {
		return 0, &ChangedError{path.Join(incomingDir, in.name)}
	}
	if mode.Perm() != mode || mode != fs.FileMode(st.Mode&0o7777) {
		if err := in.file.Chmod(mode); err != nil {
			return st.Ino, err
		}
	}
	if modified.IsZero() {
		return st.Ino, nil
	}
	at := unix.NsecToTimespec(modified.UnixNano())
	err = retryErr(func() error {
		return unix.UtimesNanoAt(int(in.dir.incomingDir.Fd()), in.name, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
	})
	if err != nil {
		return 0, &fs.PathError{Op: "set the time of", Path: path.Join(incomingDir, in.name), Err: err}
	}
	return st.Ino, nil
}

// PublishSealed publishes a file that was sealed under the id, as Incoming.PublishNew does. ino is
// the inode number that Seal returned.
func (f *Dir) PublishSealed(id, name string, size int64, ino uint64, may Replacer) (State, error) {
	in := &Incoming{dir: f, name: incomingName(id), size: size}
	state, err := f.publish(in.name, ino, name, may)
	if err == nil && state.Size != size {
		err = &ChangedError{name}
	}
	if err != nil {
		return State{}, err
	}
	_ = in.dropNotes() // the file is published: records are swept later
	return state, nil
}

// Drop removes the incoming file of an id that is not open. A missing file is not an error.
func (f *Dir) Drop(id string, size int64) error {
	in := &Incoming{dir: f, name: incomingName(id), size: size}
	return errors.Join(in.remove(in.name), in.dropNotes())
}

// Discard closes and removes the file and its progress records.
func (in *Incoming) Discard() error {
	return errors.Join(in.Close(), in.remove(in.name), in.dropNotes())
}

// remove removes a file below incomingDir. A missing file is not an error.
func (in *Incoming) remove(name string) error {
	if err := in.dir.incoming.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Close records the progress and closes the file. It may be called more than once.
func (in *Incoming) Close() (err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.unnoted > 0 && in.size > noteEvery {
		err = in.noteLocked()
	}
	if in.notes != nil {
		err = errors.Join(err, in.notes.Close())
		in.notes = nil
	}
	return errors.Join(err, in.file.Close())
}

func (in *Incoming) notesName() string { return in.name + ".ranges" }

// noteLocked records the written ranges. A line is one write at the end of the file, so a kill
// leaves at most one torn line, which is ignored.
func (in *Incoming) noteLocked() error {
	var line strings.Builder
	if in.notes == nil {
		notes, err := OpenOwn(in.dir.incoming, in.notesName(), os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return err
		}
		in.notes = notes
		if info, err := notes.Stat(); err == nil && info.Size() == 0 {
			line.WriteString(in.header)
		}
	}
	for _, r := range in.pending {
		fmt.Fprintf(&line, "%d %d.\n", r.Off, r.Len)
	}
	in.pending, in.unnoted = in.pending[:0], 0
	_, err := in.notes.WriteString(line.String())
	return err
}

// readNotes returns the ranges that the records list; nil if they are about another object or
// another boot, or are unreadable.
func (in *Incoming) readNotes() (have ranges) {
	file, err := OpenFile(in.dir.incoming, in.notesName(), os.O_RDONLY, 0)
	if err != nil {
		return nil
	}
	defer file.Close() // opened for reading
	lines := bufio.NewScanner(io.LimitReader(file, notesLimit))
	if !lines.Scan() || lines.Text()+"\n" != in.header {
		return nil
	}
	for lines.Scan() {
		text, whole := strings.CutSuffix(lines.Text(), ".")
		var r Range
		if _, err := fmt.Sscanf(text, "%d %d", &r.Off, &r.Len); err != nil || !whole ||
			r.Off < 0 || r.Len < 0 || r.End() > in.size {
			break
		}
		have = have.add(r)
	}
	return have
}

// dropNotes removes the progress records. Records from when the object was larger may stay: they
// match no file of this size.
func (in *Incoming) dropNotes() error {
	if in.size <= noteEvery {
		return nil
	}
	return in.remove(in.notesName())
}

// bootID returns the id of this boot of the machine.
var bootID = sync.OnceValue(func() string {
	id, err := sys.BootID()
	if err != nil {
		return fmt.Sprintf("unknown-%d", time.Now().UnixNano()) // matches nothing
	}
	return id
})

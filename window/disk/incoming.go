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
)

// noteEvery is how many bytes arrive between two notes of progress: what a kill
// costs at most, for each file on its way. Files no larger keep no notes.
const noteEvery = 2 << 20

// notesLimit is how many bytes of notes are read: those of a file of 4 TiB.
const notesLimit = 128 << 20

// Incoming is a file on its way in. WriteAt and Missing may be called from many
// goroutines at once; Publish, Seal or Discard comes after all of them.
//
// Its life: Dir.Incoming opens or resumes it; WriteAt fills it; the caller
// verifies it, with ReadAt where it must; Publish gives it its name, or Discard
// drops it. Seal is for names that are not to be seen yet. Close lets go of it and
// leaves it to be resumed.
type Incoming struct {
	dir     *Dir
	name    string // below incomingDir
	size    int64
	file    *File
	resumed bool

	began atomic.Pointer[time.Time] // the first byte; nil before it

	mu      sync.Mutex // guards all below
	have    ranges
	notes   *os.File // nil until the first note
	pending []Range  // arrived and not yet noted
	unnoted int64    // their bytes
	header  string
}

// Incoming opens the file that will be published under an identity of the caller's
// choice, such as the key. What an earlier process fetched of it counts when its
// size and version are these, and the machine has not been booted since: what was
// not yet on the disk then is gone, and nobody can tell which bytes.
//
// The space of a file that Reserves tells of is reserved before Incoming returns, so that a
// full disk is told here.
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
		in.have = nil // somebody touched it: begin anew
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

// incomingName is the file of an identity below incomingDir.
func incomingName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// openIncoming opens a file below incomingDir, which is a single name, for reading and
// writing, and returns how many bytes it has. It makes the file if need be; what has its
// name and is not a file of this name alone is removed. os.Root would get there by more
// steps, and ask whether one may wait for the file as for a socket.
func (f *Dir) openIncoming(name string) (file *os.File, size int64, err error) {
	const flags = unix.O_RDWR | unix.O_CREAT | unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK
	for try := 0; ; try++ {
		fd, err := retry(func() (int, error) {
			return unix.Openat(int(f.incomingDir.Fd()), name, flags, 0o644)
		})
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
		case err == nil, errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO), errors.Is(err, unix.EISDIR):
			if err = f.incoming.RemoveAll(name); err == nil {
				continue
			}
		}
		return nil, 0, &fs.PathError{Op: "open", Path: path.Join(incomingDir, name), Err: err}
	}
}

// mendIncoming lets the owner open a file below incomingDir again, if that is possible.
func (f *Dir) mendIncoming(name string) (bool, error) {
	mended, err := f.Mend()
	if mended > 0 || err != nil {
		return err == nil, err
	}
	return f.incoming.Chmod(name, 0o644) == nil, nil
}

// Size is the file's size in bytes when it is whole.
func (in *Incoming) Size() int64 { return in.size }

// Resumed tells whether bytes of an earlier process count, which nobody has summed.
func (in *Incoming) Resumed() bool { return in.resumed }

// Began tells when the first byte arrived since Dir.Incoming gave the file.
func (in *Incoming) Began() (at time.Time, began bool) {
	if first := in.began.Load(); first != nil {
		return *first, true
	}
	return at, false
}

// Missing is what has not arrived, ascending.
func (in *Incoming) Missing() []Range {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.have.missing(in.size)
}

// ReadAt reads what has arrived.
func (in *Incoming) ReadAt(p []byte, off int64) (int, error) { return in.file.ReadAt(p, off) }

// WriteAt takes bytes that have arrived. Bytes beyond the size are refused.
func (in *Incoming) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > in.size {
		return 0, fmt.Errorf("bytes %d to %d do not belong to a file of %d", off, off+int64(len(p)), in.size)
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

// Publish gives the whole file its name within the directory, its mode and its time
// (zero: now), and makes the directories on the way. It refuses a file of which bytes
// are missing. A file of that name is replaced.
func (in *Incoming) Publish(name string, mode fs.FileMode, modified time.Time) error {
	_, err := in.PublishNew(name, mode, modified, func(State) bool { return true })
	return err
}

// PublishNew is Publish for a name that others may have taken: what has it is replaced
// only if may says so, and else the error is fs.ErrExist. It returns the state that the
// file has under its name.
func (in *Incoming) PublishNew(name string, mode fs.FileMode, modified time.Time, may Replacer) (State, error) {
	ino, err := in.ready(name, mode, modified)
	if err != nil {
		return State{}, err
	}
	state, err := in.dir.publish(in.name, ino, name, may)
	if err != nil {
		return State{}, err
	}
	// From here on the file exists: what goes wrong with the notes is swept later.
	_ = in.Close()     // as above
	_ = in.dropNotes() // as above
	return state, nil
}

// Seal is Publish but for the name, which Dir.PublishSealed gives the file later, and
// Close. Until then it may still be resumed, by another process too. It returns the
// file's inode number.
func (in *Incoming) Seal(mode fs.FileMode, modified time.Time) (ino uint64, err error) {
	if ino, err = in.ready("a file to be sealed", mode, modified); err != nil {
		return 0, err
	}
	return ino, in.Close()
}

// ready refuses a file of which bytes are missing, and gives others their mode and time.
// It returns the file's inode number.
func (in *Incoming) ready(name string, mode fs.FileMode, modified time.Time) (ino uint64, err error) {
	if missing := in.Missing(); len(missing) > 0 {
		return 0, fmt.Errorf("%s: %d stretches are missing, the first at byte %d", name, len(missing), missing[0].Off)
	}
	var st unix.Stat_t
	fd := int(in.file.Fd())
	if err := retryErr(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: path.Join(incomingDir, in.name), Err: err}
	}
	if st.Size != in.size {
		return 0, &ChangedError{path.Join(incomingDir, in.name)}
	}
	if err := in.file.Chmod(mode); err != nil || modified.IsZero() {
		return st.Ino, err
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

// PublishSealed gives a file that was sealed under the identity its name, as
// Incoming.PublishNew does. ino is what Seal returned.
func (f *Dir) PublishSealed(id, name string, size int64, ino uint64, may Replacer) (State, error) {
	in := &Incoming{dir: f, name: incomingName(id), size: size}
	state, err := f.publish(in.name, ino, name, may)
	if err == nil && state.Size != size {
		err = &ChangedError{name}
	}
	if err != nil {
		return State{}, err
	}
	_ = in.dropNotes() // the file exists: they are swept later
	return state, nil
}

// Drop removes what came under an identity and is not open; nothing need be there.
func (f *Dir) Drop(id string, size int64) error {
	in := &Incoming{dir: f, name: incomingName(id), size: size}
	return errors.Join(in.remove(in.name), in.dropNotes())
}

// Discard drops the file and what is remembered of it.
func (in *Incoming) Discard() error {
	return errors.Join(in.Close(), in.remove(in.name), in.dropNotes())
}

// remove removes a file below incomingDir that may be gone.
func (in *Incoming) remove(name string) error {
	if err := in.dir.incoming.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Close notes what has arrived and lets go of the file. It may be called again.
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

// noteLocked writes down what has arrived. A line is one write to the end of the
// file, so a kill leaves at most one torn line, which is ignored.
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

// readNotes is what the notes say has arrived; nothing when they are of another
// object, another boot, or unreadable.
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

// dropNotes forgets what has arrived. Notes of a time when the object was larger may
// stay: they fit no file of this size.
func (in *Incoming) dropNotes() error {
	if in.size <= noteEvery {
		return nil
	}
	return in.remove(in.notesName())
}

// bootID names this boot of the machine.
var bootID = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Sprintf("unknown-%d", time.Now().UnixNano()) // matches nothing
	}
	return strings.TrimSpace(string(id))
})

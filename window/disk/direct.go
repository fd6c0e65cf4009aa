package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Write says how the bytes of large files get to the disk.
type Write string

const (
	// WriteAuto measures: on ext4 and xfs it is WriteDirect until more arrives than the disk
	// takes, and then WriteBuffered for what is too much, while the page cache has room. It
	// stays WriteDirect where the caller syncs. On others it is WriteBuffered.
	WriteAuto Write = "auto"
	// WriteDirect goes past the page cache: what others have there stays, and what was
	// written is read from the disk. Where the file system refuses, it is WriteBuffered.
	WriteDirect Write = "direct"
	// WriteBuffered leaves what was written in the page cache, as far as it has room.
	WriteBuffered Write = "buffered"
)

// writes are all of them.
var writes = []Write{WriteAuto, WriteDirect, WriteBuffered}

// directFrom is how large a file is at least that is written past the cache: of smaller
// ones the cache holds little, and opening them twice takes longer than it saves.
const directFrom = 8 << 20

// directAlign is what direct writes begin at and are multiples of. It is no less than
// a page, so that none ever shares a page with a write through the cache.
var directAlign = int64(max(4096, os.Getpagesize()))

// Writing is how the large files of a directory are written. The zero value writes through
// the cache.
type Writing struct {
	direct  atomic.Bool
	from    int64       // the least size of a file that is written so
	refused func(error) // told once why direct is not what was asked for; may be nil
	memory  bool        // the file system is memory
	ahead   bool        // it gives files that grow more space than they need
	chooser *chooser    // of the device, for WriteAuto; nil: all that can be is written past the cache

	moved [2]atomic.Int64 // bytes that the chooser decided about, by way
}

// SetWrite chooses how large files are written that are opened from now on; until it is
// called they are buffered. "" is WriteAuto. Where the file system turns out not to take
// direct writes they are buffered, and refused, if it is not nil, is told why, once. It
// is called before the first Incoming.
//
// synced means that the caller waits at the end until everything is on the disk. The disk's
// rate then bounds the whole, and the page cache only costs copies and idle time of the disk.
func (f *Dir) SetWrite(how Write, synced bool, refused func(error)) error {
	return f.writing.Set(f.path, how, synced, refused)
}

// Set is Dir.SetWrite for files below a path that are opened by Open.
func (w *Writing) Set(path string, how Write, synced bool, refused func(error)) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	w.refused, w.from, w.memory = refused, directFrom, int64(st.Type) == unix.TMPFS_MAGIC
	w.ahead = int64(st.Type) == unix.XFS_SUPER_MAGIC
	w.chooser = nil
	switch how {
	case "", WriteAuto:
		var file unix.Stat_t
		if err := unix.Stat(path, &file); err != nil {
			return &os.PathError{Op: "stat", Path: path, Err: err}
		}
		direct := slices.Contains([]int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC}, int64(st.Type))
		if direct && !synced {
			w.chooser = chooserOf(file.Dev)
		}
		w.direct.Store(direct)
	case WriteDirect, WriteBuffered:
		w.direct.Store(how == WriteDirect)
	default:
		return fmt.Errorf("%q is not one of %s", string(how), list(writes))
	}
	return nil
}

func list(all []Write) string {
	var names []string
	for _, w := range all {
		names = append(names, string(w))
	}
	return strings.Join(names, ", ")
}

// refuse goes on through the cache, from the first refusal on.
func (w *Writing) refuse(err error) {
	if w.direct.Swap(false) && w.refused != nil {
		w.refused(err)
	}
}

// isRefusal tells whether the file system does not take direct writes, or not of this
// alignment.
func isRefusal(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)
}

// reserveFrom is how large a file is at least whose space is reserved: of smaller ones
// that costs as much as to write them.
const reserveFrom = 1 << 20

// aheadFrom is how large a file is at least that xfs gives more space than it needs while
// it grows: as much again.
const aheadFrom = 64 << 10

// Reserves tells whether a file of that size has its space when it is opened, and not
// only as it is written. Memory has to be filled either way, so there it would only keep
// the first bytes waiting: for a second where it is 4 GiB.
func (f *Dir) Reserves(size int64) bool { return f.writing.reserves(size) }

func (w *Writing) reserves(size int64) bool { return size >= reserveFrom && !w.memory }

// reserve takes the space of a file, if it reserves; where the file system cannot, and in
// memory, a large file only gets its length.
func (w *Writing) reserve(name string, file *os.File, size int64) error {
	switch {
	case size < aheadFrom, size < reserveFrom && !w.ahead:
		return nil
	case size < reserveFrom: // what does not grow has no more than it needs
		return file.Truncate(size)
	}
	err := error(unix.EOPNOTSUPP)
	if !w.memory {
		err = unix.Fallocate(int(file.Fd()), 0, 0, size)
	}
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		err = file.Truncate(size)
	}
	if err != nil {
		return &os.PathError{Op: "reserve space for", Path: name, Err: err}
	}
	return nil
}

// File is an open file with its second way past the cache. WriteAt may be called from many
// goroutines at once.
type File struct {
	*os.File
	how    *Writing
	direct *os.File // the same, past the page cache; nil where it is not written so
	// cached is held by the one goroutine that writes through the cache: the kernel lets one
	// at a time, too, but has the others wait by spinning.
	cached sync.Mutex

	// Of WriteAuto:
	under  atomic.Int32 // writes under way
	shared atomic.Bool  // several were under way at once
}

// Open takes a file that was opened for writing below a root and is to have so many bytes:
// it takes their space, where the file system can, and opens the file once more for direct
// writes, where they are wanted. What is wrong with the file ends with it: Close closes both.
func (w *Writing) Open(root *os.Root, name string, file *os.File, size int64) (*File, error) {
	if err := w.reserve(name, file, size); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	f := &File{File: file, how: w}
	if size < w.from || !w.direct.Load() {
		return f, nil
	}
	direct, err := OpenFile(root, name, os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil && isRefusal(err) {
		w.refuse(err)
		return f, nil
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if err := same(name, file, direct); err != nil {
		return nil, errors.Join(err, file.Close(), direct.Close())
	}
	f.direct = direct
	if w.chooser != nil {
		w.chooser.open(1)
	}
	return f, nil
}

// same returns an error unless both are one file: the name is looked up twice.
func same(name string, a, b *os.File) error {
	first, err := a.Stat()
	if err != nil {
		return err
	}
	second, err := b.Stat()
	if err == nil && !os.SameFile(first, second) {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("another program put another file there; run it again")}
	}
	return err
}

// WriteAt puts p at off: whole pages of aligned memory past the cache, where they are to go
// there, the rest through it.
//
// A page is only ever written in one of the two ways while a file is on its way: a
// direct write takes whole pages, and ReadRange brings each byte once, so that the page
// on which a stream broke is finished through the cache.
func (f *File) WriteAt(p []byte, off int64) (n int, err error) {
	whole := len(p) - len(p)%int(directAlign)
	if f.direct != nil && whole > 0 && off%directAlign == 0 && f.how.direct.Load() && isAligned(p) {
		if f.how.chooser == nil {
			n, err = f.direct.WriteAt(p[:whole], off)
		} else {
			n, err = f.writeChosen(p[:whole], off)
		}
		switch {
		case err == nil:
		case n == 0 && isRefusal(err):
			f.how.refuse(err)
		default:
			return n, err
		}
	}
	if n == len(p) {
		return n, nil
	}
	m, err := f.writeCached(p[n:], off+int64(n))
	return n + m, err
}

func (f *File) writeCached(p []byte, off int64) (int, error) {
	f.cached.Lock()
	defer f.cached.Unlock()
	return f.File.WriteAt(p, off)
}

// writeChosen writes whole pages in the way that the chooser returns.
func (f *File) writeChosen(p []byte, off int64) (n int, err error) {
	c := f.how.chooser
	if f.under.Add(1) > 1 && !f.shared.Load() {
		f.shared.Store(true)
	}
	defer f.under.Add(-1)
	w := c.begin(len(p), f.shared.Load())
	if w == past {
		n, err = f.direct.WriteAt(p, off)
	} else {
		n, err = f.writeCached(p, off)
	}
	c.end(w, n)
	f.how.moved[w].Add(int64(n))
	if w == through && err == nil && c.start(n) && c.starting.TryLock() {
		defer c.starting.Unlock()
		_ = unix.SyncFileRange(int(f.Fd()), off, int64(n), unix.SYNC_FILE_RANGE_WRITE) // else the kernel does it later
	}
	return n, err
}

// Close closes the file. It may be called again.
func (f *File) Close() (err error) {
	if f.direct != nil {
		err = f.direct.Close()
		f.direct = nil
		if f.how.chooser != nil {
			f.how.chooser.open(-1)
		}
	}
	if cerr := f.File.Close(); cerr != nil && !errors.Is(cerr, os.ErrClosed) {
		err = errors.Join(err, cerr)
	}
	return err
}

// isAligned tells whether p begins where direct writes may.
func isAligned(p []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(p)))%4096 == 0
}

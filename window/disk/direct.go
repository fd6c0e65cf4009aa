package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/sys"
	"github.com/stager-dev/stager/window/disk/memory"
)

// Write selects how large files are written to the disk.
type Write string

const (
	// WriteAuto measures. On ext4 and xfs it is WriteDirect unless the page cache is as fast, or more data
	// arrives than the disk takes. The excess is then WriteBuffered, while the page cache has room. It is
	// always WriteDirect if the caller syncs. On other file systems it is WriteBuffered.
	WriteAuto Write = "auto"
	// WriteDirect bypasses the page cache. Cached data of other programs stays, and later reads of
	// the file go to the disk. If the file system refuses, it is WriteBuffered.
	WriteDirect Write = "direct"
	// WriteBuffered leaves the written data in the page cache, as far as it has room.
	WriteBuffered Write = "buffered"
)

// writes lists the valid values.
var writes = []Write{WriteAuto, WriteDirect, WriteBuffered}

// directFrom is the minimum size of a file for direct writes. Smaller files take little of the
// cache, and opening them twice takes longer than it saves.
const directFrom = 8 << 20

// directAlign is the alignment of direct writes, in offset and length. It is at least a page, so
// that a direct write never shares a page with a cached one.
var directAlign = int64(max(4096, os.Getpagesize()))

// Writing is how the large files of a directory are written. The zero value writes through the
// cache.
type Writing struct {
	direct  atomic.Bool
	from    int64       // minimum size of a file for direct writes
	refused func(error) // called once with the reason if direct writes are refused; may be nil
	memory  bool        // the file system is in memory
	ahead   bool        // the file system allocates ahead of growing files
	synced  bool        // files are synced at the end, although they may be written through the cache
	chooser *chooser    // of the device, for WriteAuto; nil: all aligned writes are direct

	moved [2]atomic.Int64 // bytes of writes that the chooser decided about, by way
}

// SetWrite selects how large files that are opened from now on are written. The default is
// buffered. "" is WriteAuto. If the file system refuses direct writes, files are buffered, and
// refused, unless nil, is called once with the reason. Call SetWrite before the first Incoming.
//
// synced means that the caller syncs everything at the end. The rate of the disk then limits the
// whole transfer, and the page cache would only add copies and idle time of the disk.
func (f *Dir) SetWrite(how Write, synced bool, refused func(error)) error {
	return f.writing.Set(f.path, how, synced, refused)
}

// Set is Dir.SetWrite for files below a path that are opened by Open.
func (w *Writing) Set(path string, how Write, synced bool, refused func(error)) error {
	on, err := sys.FileSystemAt(path)
	if err != nil {
		return &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	w.refused, w.from, w.memory = refused, directFrom, on.Name == "tmpfs"
	w.ahead = on.Name == "xfs"
	w.chooser = nil
	switch how {
	case "", WriteAuto:
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		direct := on.Name == "ext4" || on.Name == "xfs"
		if st, ok := info.Sys().(*syscall.Stat_t); ok && direct && !synced {
			w.chooser = chooserOf(sys.Device(st))
		}
		w.direct.Store(direct)
	case WriteDirect, WriteBuffered:
		w.direct.Store(how == WriteDirect)
	default:
		return fmt.Errorf("%q is not one of %s", string(how), list(writes))
	}
	return nil
}

// KeepBusy makes WriteAuto keep the disk busy from the first byte on, for callers that sync the files at the end
// and read them at once. Otherwise it leaves the first bytes to the kernel.
func (w *Writing) KeepBusy() { w.synced = true }

func list(all []Write) string {
	var names []string
	for _, w := range all {
		names = append(names, string(w))
	}
	return strings.Join(names, ", ")
}

// refuse switches to buffered writes at the first refusal.
func (w *Writing) refuse(err error) {
	if w.direct.Swap(false) && w.refused != nil {
		w.refused(err)
	}
}

// isRefusal reports whether the file system does not support direct writes, or not with this
// alignment.
func isRefusal(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP)
}

// reserveFrom is the minimum size of a file for preallocation. For smaller files it costs as much
// as writing them.
const reserveFrom = 1 << 20

// aheadFrom is the minimum size of a file for which xfs allocates ahead while it grows: as much
// again.
const aheadFrom = 64 << 10

// Reserves reports whether a file of that size is preallocated when it is opened. Files in memory
// are not: preallocation would fill their pages, which delays the first write (by a second for 4
// GiB).
func (f *Dir) Reserves(size int64) bool { return f.writing.reserves(size) }

func (w *Writing) reserves(size int64) bool { return size >= reserveFrom && !w.memory }

// reserve preallocates the space of a file if reserves is true. If the file system cannot, and in
// memory, a large file only gets its length.
func (w *Writing) reserve(name string, file *os.File, size int64) error {
	switch {
	case size < aheadFrom, size < reserveFrom && !w.ahead:
		return nil
	case size < reserveFrom: // a file that does not grow gets no extra space
		return file.Truncate(size)
	}
	err := error(unix.ENOTSUP)
	if !w.memory {
		err = sys.Allocate(file, size)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		err = file.Truncate(size)
	}
	if err != nil {
		return &os.PathError{Op: "reserve space for", Path: name, Err: err}
	}
	return nil
}

// File is an open file with an optional second descriptor for direct writes. WriteAt is safe for
// concurrent use.
type File struct {
	*os.File
	how    *Writing
	direct *os.File // the same file, opened with O_DIRECT; nil if not used
	// cached serializes writes through the cache. The kernel serializes them, too, but the waiting
	// threads spin.
	cached sync.Mutex

	// For WriteAuto:
	under  atomic.Int32 // writes in flight
	shared atomic.Bool  // several were in flight at once
}

// Open takes ownership of a file that was opened for writing below a root and will have size bytes.
// It preallocates the space if the file system can, and opens the file again for direct writes if
// they are enabled. On an error it closes the file. Close closes both descriptors.
func (w *Writing) Open(root *os.Root, name string, file *os.File, size int64) (*File, error) {
	if err := w.reserve(name, file, size); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	f := &File{File: file, how: w}
	if size < w.from || !w.direct.Load() {
		return f, nil
	}
	direct, err := openDirect(root, name)
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

// openDirect opens a file for direct writes. isRefusal reports whether these are not supported.
func openDirect(root *os.Root, name string) (*os.File, error) {
	if !sys.HasDirect {
		return nil, &os.PathError{Op: "open", Path: name, Err: unix.ENOTSUP}
	}
	return OpenFile(root, name, os.O_WRONLY|sys.Direct, 0)
}

// same returns an error unless both are the same file: the name is looked up twice.
func same(name string, a, b *os.File) error {
	first, err := a.Stat()
	if err != nil {
		return err
	}
	second, err := b.Stat()
	if err == nil && !os.SameFile(first, second) {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("another program replaced the file; run the command again")}
	}
	return err
}

// WriteAt writes p at off. Whole pages from aligned memory may bypass the cache; the rest goes
// through it.
//
// While a file is being fetched, each page is written in only one of the two ways. A direct write
// covers whole pages, and ReadRange delivers each byte once. So the page at which a stream broke
// off is completed through the cache.
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

// writeChosen writes whole pages in the way that the chooser selects.
func (f *File) writeChosen(p []byte, off int64) (n int, err error) {
	c := f.how.chooser
	if f.under.Add(1) > 1 && !f.shared.Load() {
		f.shared.Store(true)
	}
	defer f.under.Add(-1)
	w, unlocked := c.begin(len(p), f.shared.Load(), f.how.synced)
	switch {
	case w == through:
		n, err = f.writeCached(p, off)
	case unlocked:
		n, err = sys.WriteUnlocked(f.direct, p, off)
	default:
		n, err = f.direct.WriteAt(p, off)
	}
	c.end(w, n)
	f.how.moved[w].Add(int64(n))
	if w == through && err == nil && c.start(n) && c.starting.TryLock() {
		defer c.starting.Unlock()
		sys.StartWriteback(f.File, off, int64(n))
	}
	return n, err
}

// Close closes the file. It may be called more than once.
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

// Ways reports how many bytes of files under WriteAuto bypassed the page cache and went through it,
// and how often this process switched between the two on this device.
func (f *Dir) Ways() (direct, cached, changes int64) {
	c := f.writing.chooser
	if c == nil {
		return 0, 0, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return f.writing.moved[past].Load(), f.writing.moved[through].Load(), c.changes
}

// choosers holds the choosers of this process by device: measurements apply to all files of a
// device.
var choosers = struct {
	mu sync.Mutex
	of map[uint64]*chooser
}{of: make(map[uint64]*chooser)}

// chooserOf returns the chooser of a device, and creates it if needed.
func chooserOf(device uint64) *chooser {
	choosers.mu.Lock()
	defer choosers.mu.Unlock()
	c := choosers.of[device]
	if c == nil {
		c = newChooser(memory.NewReader().Read)
		choosers.of[device] = c
	}
	return c
}

// isAligned reports whether the memory of p is aligned for direct writes.
func isAligned(p []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(p)))%4096 == 0
}

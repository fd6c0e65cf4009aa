package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// writeWatches reports whether any process wrote to a file while it was read. The modification
// time is not sufficient: it can be set back, and a write through a mapping of a file in memory
// does not change it. A writer either still has the file open for writing at the end, which
// beingWritten detects, or has closed it, which the kernel reports here. The writer is not
// blocked.
//
// One inotify instance serves all files. The kernel takes several milliseconds to close an
// instance. One instance per file made checkpoints of many small files seven times slower, and
// the number of instances per user is small.
type writeWatches struct {
	mu    sync.Mutex // guards the fields below
	open  bool
	fd    int
	files map[int32]*watchedFile // by watch descriptor
}

// watchedFile is a file with at least one writeWatch.
type watchedFile struct {
	watches int
	written bool
	lost    bool // the kernel dropped events
}

// writeWatch is a watch of an open file. A nil writeWatch knows nothing.
type writeWatch struct {
	of *writeWatches
	wd int32
}

// writes is the instance of this process. It is never closed.
var writes writeWatches

// watch starts a watch of an open file. It fails when the kernel does not support it or has
// reached its limit.
func (w *writeWatches) watch(file *os.File) (*writeWatch, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.open {
		fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
		if err != nil {
			return nil, err
		}
		w.open, w.fd, w.files = true, fd, make(map[int32]*watchedFile)
	}
	// Use the descriptor: another file may have the name by now.
	name := fmt.Sprintf("/proc/self/fd/%d", file.Fd())
	n, err := unix.InotifyAddWatch(w.fd, name, unix.IN_MODIFY|unix.IN_CLOSE_WRITE)
	if err != nil {
		return nil, err
	}
	wd := int32(n)
	if w.files[wd] == nil {
		w.files[wd] = new(watchedFile)
	}
	w.files[wd].watches++
	return &writeWatch{w, wd}, nil
}

// readLocked reads all pending events.
func (w *writeWatches) readLocked() {
	var buf [4 << 10]byte
	for {
		n, err := unix.Read(w.fd, buf[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		for events := buf[:n]; len(events) >= unix.SizeofInotifyEvent; {
			wd, mask := int32(binary.NativeEndian.Uint32(events)), binary.NativeEndian.Uint32(events[4:])
			events = events[min(len(events), unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(events[12:]))):]
			if mask&unix.IN_Q_OVERFLOW != 0 {
				for _, f := range w.files {
					f.lost = true
				}
			} else if f := w.files[wd]; f != nil && mask&(unix.IN_MODIFY|unix.IN_CLOSE_WRITE) != 0 {
				f.written = true
			}
		}
	}
}

// written reports whether a process wrote to the file, or closed it after opening it for writing.
// known is false when the kernel cannot tell.
func (w *writeWatch) written() (written, known bool) {
	if w == nil {
		return false, false
	}
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	w.of.readLocked()
	f := w.of.files[w.wd]
	return f.written, !f.lost
}

// close ends the watch.
func (w *writeWatch) close() {
	if w == nil {
		return
	}
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	f := w.of.files[w.wd]
	if f.watches--; f.watches > 0 {
		return
	}
	delete(w.of.files, w.wd)
	_, _ = unix.InotifyRmWatch(w.of.fd, uint32(w.wd)) // if the file is gone, the watch is too
}

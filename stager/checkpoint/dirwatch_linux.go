package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/window/disk"
)

// dirWatch reads inotify events of the output directory and its subdirectories. It does not use
// fsnotify, because that does not pair the two names of a rename. The pair proves that a
// checkpoint was renamed into place.
type dirWatch struct {
	u     *Uploader
	file  *os.File         // of the inotify instance
	hint  chan<- struct{}  // has a buffer of one
	top   int32            // watch descriptor of the output's directory
	names map[int32]string // of its subdirectories, by watch descriptor
	from  map[uint32]string
}

const (
	topEvents    = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_CLOSE_WRITE | unix.IN_ONLYDIR
	insideEvents = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_CLOSE_WRITE | unix.IN_ONLYDIR
	mostFrom     = 1000 // limit on renames out of the directory, which have no second name
)

// newDirWatch returns a watch of the output directory. It fails if the kernel does not support
// inotify or its limits are reached.
func newDirWatch(u *Uploader, hint chan<- struct{}) (*dirWatch, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	w := &dirWatch{u: u, file: os.NewFile(uintptr(fd), "inotify"), hint: hint, names: make(map[int32]string), from: make(map[uint32]string)}
	if w.top, err = w.add(".", topEvents); err != nil {
		return nil, errors.Join(err, w.file.Close())
	}
	return w, nil
}

// add watches a directory below the output directory. It does not follow symbolic links.
func (w *dirWatch) add(name string, events uint32) (int32, error) {
	dir, err := w.u.root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer dir.Close() // only its descriptor was needed
	var wd int
	var cerr error
	conn, err := w.file.SyscallConn()
	if err == nil {
		err = conn.Control(func(fd uintptr) {
			wd, cerr = unix.InotifyAddWatch(int(fd), fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), events)
		})
	}
	return int32(wd), errors.Join(err, cerr)
}

// run reads events until the watch is closed.
func (w *dirWatch) run() {
	buf := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		for events := buf[:n]; len(events) >= unix.SizeofInotifyEvent; {
			length := min(len(events), unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(events[12:])))
			name, _, _ := bytes.Cut(events[unix.SizeofInotifyEvent:length], []byte{0})
			w.event(int32(binary.NativeEndian.Uint32(events)), binary.NativeEndian.Uint32(events[4:]),
				binary.NativeEndian.Uint32(events[8:]), string(name))
			events = events[length:]
		}
	}
}

func (w *dirWatch) event(wd int32, mask, cookie uint32, name string) {
	switch {
	case mask&unix.IN_Q_OVERFLOW != 0:
		w.u.log.Warn("the kernel dropped notifications for the output directory, scanning it; files renamed in the meantime need other evidence")
		w.rescan()
		w.wake()
		return
	case mask&unix.IN_IGNORED != 0:
		delete(w.names, wd) // the directory was removed
		return
	case wd != w.top:
		w.wake()
		return
	case strings.HasPrefix(name, private):
		return
	case mask&unix.IN_MOVED_FROM != 0:
		if len(w.from) >= mostFrom {
			clear(w.from)
		}
		w.from[cookie] = name
		w.u.departed(name)
		return
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		w.u.came(name)
		w.u.appears(name, mask&unix.IN_ISDIR != 0)
		if mask&unix.IN_ISDIR != 0 {
			w.inside(name)
		}
	}
	if mask&unix.IN_MOVED_TO != 0 {
		from, paired := w.from[cookie]
		delete(w.from, cookie)
		if !paired || !claimsStep(from) {
			w.u.renames.into(name)
		}
	}
	w.wake()
}

// inside watches a new subdirectory, so that new entries such as a marker are noticed at once.
func (w *dirWatch) inside(name string) {
	if wd, err := w.add(name, insideEvents); err == nil { // else removed, or no watches left: a later scan finds it
		w.names[wd] = name
	}
}

// rescan watches the subdirectories that exist now.
func (w *dirWatch) rescan() {
	clear(w.from)
	entries, err := fs.ReadDir(disk.FS(w.u.root), ".")
	if err != nil {
		return // scan reports it
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), private) {
			w.inside(e.Name())
		}
	}
}

func (w *dirWatch) wake() {
	select {
	case w.hint <- struct{}{}:
	default:
	}
}

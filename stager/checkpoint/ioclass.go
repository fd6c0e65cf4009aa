package checkpoint

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// What an upload reads from a disk waits there for nobody, and the trainer and the window
// may: so it is read in the idle class of the disk's scheduler. That is of no weight where
// the scheduler knows no classes, and never stops an upload: bfq serves the idle class five
// times a second, whatever the others want, and mq-deadline after ten seconds. At the
// end nothing is more urgent than what is saved, and it is read as everything else is.
//
// Window and prefetch write in the class that the process was given: what they bring is
// what a reader waits for next.

// giveWay is a file that is read in the idle class, as long as idle says so.
type giveWay struct {
	io.ReaderAt
	idle func() bool // nil: never
}

// ReadAt implements io.ReaderAt. The class is a thread's, and a goroutine has one of its
// own only while it insists.
func (g giveWay) ReadAt(p []byte, off int64) (int, error) {
	if g.idle == nil || !g.idle() {
		return g.ReaderAt.ReadAt(p, off)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if before, ok := ioClass(); ok && setIOClass(ioClassIdle) {
		defer setIOClass(before)
	}
	return g.ReaderAt.ReadAt(p, off)
}

const (
	ioClassIdle = 3 << 13 // IOPRIO_CLASS_IDLE
	thisThread  = 1       // IOPRIO_WHO_PROCESS, which is a thread, with 0: the caller
)

func setIOClass(class int) bool {
	_, _, errno := unix.Syscall(unix.SYS_IOPRIO_SET, thisThread, 0, uintptr(class))
	return errno == 0
}

func ioClass() (class int, ok bool) {
	n, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, thisThread, 0, 0)
	return int(n), errno == 0
}

// disks is where the kernel tells of them.
const disks = "/sys/dev/block"

// hasClasses tells whether the disk below a directory serves who reads by classes, or may.
func hasClasses(root *os.Root) bool {
	info, err := root.Stat(".")
	if err != nil {
		return true
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || mayHaveClasses(disks, unix.Major(st.Dev), unix.Minor(st.Dev))
}

func mayHaveClasses(disks string, major, minor uint32) bool {
	if major == 0 {
		return false // there is no disk, or a network before it
	}
	disk := filepath.Join(disks, fmt.Sprintf("%d:%d", major, minor))
	if below, err := os.ReadDir(filepath.Join(disk, "slaves")); err == nil && len(below) > 0 {
		return true // it is put together of others
	}
	for _, queue := range []string{"queue", "../queue"} { // its own, or that of the disk whose part it is
		if text, err := os.ReadFile(disk + "/" + queue + "/scheduler"); err == nil {
			return strings.Contains(string(text), "[bfq]") || strings.Contains(string(text), "[mq-deadline]")
		}
	}
	return true
}

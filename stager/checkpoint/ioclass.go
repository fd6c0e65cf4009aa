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

	"github.com/stager-dev/stager/backends/sys"
)

// Uploads read the disk in the idle class of the I/O scheduler: nobody waits for these reads,
// while the trainer and the window may wait for theirs. The class has no effect if the scheduler
// has no classes. It never blocks an upload: bfq serves the idle class five times a second
// whatever the other load, and mq-deadline after ten seconds. During the drain nothing is more
// urgent than saving, so uploads read in the normal class.
//
// Window and prefetch write in the class of the process, because a reader waits for what they
// fetch.

// giveWay is a file that is read in the idle class while idle returns true.
type giveWay struct {
	io.ReaderAt
	idle func() bool // nil: never
}

// ReadAt implements io.ReaderAt. The I/O class belongs to a thread, so the goroutine is locked to
// its thread during the read.
func (g giveWay) ReadAt(p []byte, off int64) (int, error) {
	if g.idle == nil || !g.idle() {
		return g.ReaderAt.ReadAt(p, off)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if before, ok := sys.IOClass(); ok && sys.SetIOClass(ioClassIdle) {
		defer sys.SetIOClass(before)
	}
	return g.ReaderAt.ReadAt(p, off)
}

const ioClassIdle = 3 << 13 // IOPRIO_CLASS_IDLE

// disks is the sysfs directory of block devices.
const disks = "/sys/dev/block"

// hasClasses reports whether the disk below a directory has an I/O scheduler with classes, or may
// have one.
func hasClasses(root *os.Root) bool {
	info, err := root.Stat(".")
	if err != nil {
		return true
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || mayHaveClasses(disks, unix.Major(sys.Device(st)), unix.Minor(sys.Device(st)))
}

func mayHaveClasses(disks string, major, minor uint32) bool {
	if major == 0 {
		return false // no disk, or a network file system
	}
	disk := filepath.Join(disks, fmt.Sprintf("%d:%d", major, minor))
	if below, err := os.ReadDir(filepath.Join(disk, "slaves")); err == nil && len(below) > 0 {
		return true // it consists of other devices
	}
	for _, queue := range []string{"queue", "../queue"} { // its own, or that of the disk that it is a partition of
		if text, err := os.ReadFile(disk + "/" + queue + "/scheduler"); err == nil {
			return strings.Contains(string(text), "[bfq]") || strings.Contains(string(text), "[mq-deadline]")
		}
	}
	return true
}

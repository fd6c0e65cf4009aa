package sys

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Changed returns the change time of a file, which cannot be set, from its Sys.
func Changed(st *syscall.Stat_t) time.Time { return time.Unix(st.Ctimespec.Unix()) }

// Mode returns the type and permissions of a file as the kernel encodes them.
func Mode(st *unix.Stat_t) uint32 { return uint32(st.Mode) }

// Device returns the number of the device that a file is on.
func Device(st *syscall.Stat_t) uint64 { return uint64(uint32(st.Dev)) }

// Born returns when a file below root was created, without following a link. ok is false on file
// systems that do not record it.
func Born(root *os.Root, name string) (at time.Time, ok bool) {
	info, err := root.Lstat(name)
	if err != nil {
		return at, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Birthtimespec.Sec <= 0 { // a file system without birth times reports 0 or -1
		return at, false
	}
	return time.Unix(st.Birthtimespec.Unix()), true
}

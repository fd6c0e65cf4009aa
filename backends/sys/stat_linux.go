package sys

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Changed returns the change time of a file, which cannot be set, from its Sys.
func Changed(st *syscall.Stat_t) time.Time { return time.Unix(st.Ctim.Unix()) }

// Mode returns the type and permissions of a file as the kernel encodes them.
func Mode(st *unix.Stat_t) uint32 { return st.Mode }

// Device returns the number of the device that a file is on.
func Device(st *syscall.Stat_t) uint64 { return st.Dev }

// Born returns when a file below root was created, without following a link. ok is false on file
// systems that do not record it.
func Born(root *os.Root, name string) (at time.Time, ok bool) {
	file, err := root.OpenFile(name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return at, false
	}
	defer file.Close() // opened for its birth time alone
	var st unix.Statx_t
	err = unix.Statx(int(file.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st)
	return time.Unix(st.Btime.Sec, int64(st.Btime.Nsec)), err == nil && st.Mask&unix.STATX_BTIME != 0
}

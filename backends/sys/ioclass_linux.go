package sys

import "golang.org/x/sys/unix"

const thisThread = 1 // IOPRIO_WHO_PROCESS is a thread; 0 is the caller

// SetIOClass sets the class of this thread for the I/O scheduler. It returns false if the kernel
// refuses.
func SetIOClass(class int) bool {
	_, _, errno := unix.Syscall(unix.SYS_IOPRIO_SET, thisThread, 0, uintptr(class))
	return errno == 0
}

// IOClass returns the class of this thread for the I/O scheduler.
func IOClass() (class int, ok bool) {
	n, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, thisThread, 0, 0)
	return int(n), errno == 0
}

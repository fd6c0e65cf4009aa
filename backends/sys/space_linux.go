package sys

import (
	"os"

	"golang.org/x/sys/unix"
)

// Allocate gives a file size bytes of disk space, and that length.
func Allocate(file *os.File, size int64) error { return unix.Fallocate(int(file.Fd()), 0, 0, size) }

// Reserve gives a file size bytes of disk space, and leaves its length.
func Reserve(file *os.File, size int64) error {
	return unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
}

// Clone makes the file to share all blocks of from.
func Clone(to, from *os.File) error { return unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) }

// OpenUnnamed creates a file without a name on the file system of a directory.
func OpenUnnamed(dir int) (fd int, err error) {
	return unix.Openat(dir, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
}

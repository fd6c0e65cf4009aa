package sys

import (
	"os"

	"golang.org/x/sys/unix"
)

// Allocate gives a file size bytes of disk space, and that length. macOS allocates from the end of
// what a file has, which a resumed file cannot use.
func Allocate(*os.File, int64) error { return unix.ENOTSUP }

// Reserve gives a file size bytes of disk space, and leaves its length.
func Reserve(*os.File, int64) error { return unix.ENOTSUP }

// Clone makes the file to share all blocks of from. macOS clones only to a name that does not exist.
func Clone(_, _ *os.File) error { return unix.ENOTSUP }

// OpenUnnamed creates a file without a name on the file system of a directory.
func OpenUnnamed(int) (fd int, err error) { return -1, unix.ENOTSUP }

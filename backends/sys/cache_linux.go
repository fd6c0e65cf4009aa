package sys

import (
	"os"

	"golang.org/x/sys/unix"
)

// Direct is the flag of open for writes that bypass the page cache.
const Direct = unix.O_DIRECT

// HasDirect reports whether the system has that flag.
const HasDirect = true

// StartWriteback asks the kernel to write a range of a file to the disk, without waiting for it.
func StartWriteback(file *os.File, off, n int64) {
	_ = unix.SyncFileRange(int(file.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE) // on error the kernel writes it later
}

// DropCache asks the kernel to drop a file from the page cache.
func DropCache(file *os.File) {
	_ = unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED) // advisory only
}

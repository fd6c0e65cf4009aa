package sys

import "os"

// Direct is the flag of open for writes that bypass the page cache.
const Direct = 0

// HasDirect reports whether the system has that flag.
const HasDirect = false

// StartWriteback asks the kernel to write a range of a file to the disk, without waiting for it.
func StartWriteback(*os.File, int64, int64) {}

// DropCache asks the kernel to drop a file from the page cache.
func DropCache(*os.File) {}

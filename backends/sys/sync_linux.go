package sys

import (
	"os"

	"golang.org/x/sys/unix"
)

// SyncTree returns when the files below root are on the disk, and their names. dir is root's own
// directory, open. One call flushes the whole file system.
func SyncTree(_ *os.Root, dir *os.File) error { return unix.Syncfs(int(dir.Fd())) }

package sys

import (
	"golang.org/x/sys/unix"
)

// FileSystem is what the kernel reports about the file system of a file.
type FileSystem struct {
	Name  string // such as "ext4" or "nfs"; its number if it is none of those that stager distinguishes
	Free  int64  // bytes that this user can write
	Local bool   // known to be written by processes of this machine alone, which its locks exclude

	// MapsSilently means that a write through a mapping may leave the times of the file as they are.
	MapsSilently bool
}

// FileSystemOf returns the file system of an open file.
func FileSystemOf(fd int) (FileSystem, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return FileSystem{}, err
	}
	return describe(&st), nil
}

// FileSystemAt returns the file system of a path.
func FileSystemAt(path string) (FileSystem, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return FileSystem{}, err
	}
	return describe(&st), nil
}

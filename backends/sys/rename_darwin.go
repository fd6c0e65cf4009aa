package sys

import (
	"errors"

	"golang.org/x/sys/unix"
)

// RenameNew renames an entry of the directory from, and never replaces another: if the name is
// taken, the error is EEXIST. EINVAL and ENOSYS mean that the file system cannot do that.
func RenameNew(from int, old string, to int, name string) error {
	return unsupported(unix.RenameatxNp(from, old, to, name, unix.RENAME_EXCL))
}

// Exchange exchanges two entries in one step. EINVAL and ENOSYS mean that the file system cannot do
// that.
func Exchange(from int, old string, to int, name string) error {
	return unsupported(unix.RenameatxNp(from, old, to, name, unix.RENAME_SWAP))
}

// unsupported returns ENOSYS for the error that macOS has for file systems without such a rename.
func unsupported(err error) error {
	if errors.Is(err, unix.ENOTSUP) {
		return unix.ENOSYS
	}
	return err
}

package sys

import "golang.org/x/sys/unix"

// RenameNew renames an entry of the directory from, and never replaces another: if the name is
// taken, the error is EEXIST. EINVAL and ENOSYS mean that the file system cannot do that.
func RenameNew(from int, old string, to int, name string) error {
	return unix.Renameat2(from, old, to, name, unix.RENAME_NOREPLACE)
}

// Exchange exchanges two entries in one step. EINVAL and ENOSYS mean that the file system cannot do
// that.
func Exchange(from int, old string, to int, name string) error {
	return unix.Renameat2(from, old, to, name, unix.RENAME_EXCHANGE)
}

package checkpoint

import (
	"errors"
	"io/fs"
)

// claimsStep reports whether name is the final name of a checkpoint.
func claimsStep(name string) bool {
	if _, temporary := finalName(name); temporary {
		return false
	}
	_, file := stepOf(name, false)
	_, dir := stepOf(name, true)
	return file || dir
}

// movedInto records that something was renamed to a name in the output directory.
func (u *Uploader) movedInto(name string) {
	info, err := u.root.Lstat(name)
	if err != nil {
		return // it was removed again
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.moved[name] = inode(info)
}

// movedLocked reports whether a checkpoint was renamed into place. It reports each rename once.
func (u *Uploader) movedLocked(name string) bool {
	want, ok := u.moved[name]
	if !ok {
		return false
	}
	delete(u.moved, name)
	info, err := u.root.Lstat(name)
	return err == nil && inode(info) == want
}

// forgetMovedLocked forgets renames of entries that no longer exist.
func (u *Uploader) forgetMovedLocked() {
	for name := range u.moved {
		if _, err := u.root.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			delete(u.moved, name)
		}
	}
}

package file

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/stager-dev/stager/backends"
)

func TestClassify(t *testing.T) {
	for errno, want := range map[syscall.Errno]backends.Kind{
		syscall.ENOENT: backends.NotExist, syscall.EEXIST: backends.Exist,
		syscall.EACCES: backends.Permission, syscall.EPERM: backends.Permission, syscall.EROFS: backends.Permission,
		syscall.ENOSPC: backends.NoSpace, syscall.EDQUOT: backends.NoSpace,
		syscall.ESTALE: backends.Unavailable, syscall.EIO: backends.Unavailable, syscall.ETIMEDOUT: backends.Unavailable,
		syscall.ENOTDIR: backends.Invalid, syscall.ENAMETOOLONG: backends.Invalid, syscall.EISDIR: backends.Invalid,
		syscall.EPROTO: backends.Unknown,
	} {
		err := classify("read", "k", &fs.PathError{Op: "open", Path: "k", Err: errno})
		if got := backends.KindOf(err); got != want || !errors.Is(err, errno) {
			t.Errorf("%v: got kind %s (%v), want %s", errno, got, err, want)
		}
	}
	// A failure of the source is not an error of this store.
	local := &backends.LocalError{Err: syscall.EIO}
	if got := classify("write", "k", local); got != error(local) {
		t.Errorf("classify(%v) = %v, want it as it is", local, got)
	}
}

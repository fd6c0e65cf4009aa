package download

import (
	"errors"
	"io/fs"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
)

func TestErrorsSeparateLocalFromStore(t *testing.T) {
	for _, tt := range []struct {
		err  error
		kind backends.Kind
		want string
	}{
		{&fs.PathError{Op: "write", Path: "x", Err: unix.ENOSPC}, backends.NoSpace, "write a/b: write x: no space left on device"},
		{&backends.LocalError{Err: &fs.PathError{Op: "write", Path: "x", Err: unix.EDQUOT}}, backends.NoSpace, "write a/b: write x: disk quota exceeded"},
		{&fs.PathError{Op: "open", Path: "x", Err: unix.EACCES}, backends.Permission, "a/b: open x: permission denied"},
		{&backends.LocalError{Err: unix.EIO}, backends.Unknown, "a/b: input/output error"},
	} {
		got := local("a/b", tt.err)
		var broken *backends.LocalError
		if got.Error() != tt.want || backends.KindOf(got) != tt.kind || !errors.As(got, &broken) {
			t.Errorf("got %q of kind %v, want %q of kind %v", got, backends.KindOf(got), tt.want, tt.kind)
		}
		if isKind(got, backends.NotExist, backends.Permission) {
			t.Errorf("%q is taken for the store's", got)
		}
	}
}

package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/stager-dev/stager/backends"
)

// One unreadable file ended a push with exit code 77 and omitted all later files. An output
// retried it forever with growing pauses. Now it is reported, and the rest is saved.
func TestUnreadable(t *testing.T) {
	denied := &os.PathError{Op: "openat", Path: "secret", Err: fs.ErrPermission}
	for _, tt := range []struct {
		err  error
		want string // "" when the file's permissions are not the cause
	}{
		{nil, ""},
		{denied, "it cannot be read: permission denied"},
		{&backends.LocalError{Err: denied}, "it cannot be read: permission denied"},
		{&backends.Error{Op: "commit", Key: "k", Kind: backends.Permission, Err: denied}, ""}, // of the store
		{errors.New("input/output error"), ""},
	} {
		if got, ok := unreadable(tt.err); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%v: got %q, %v; want %q", tt.err, got, ok, tt.want)
		}
	}
}

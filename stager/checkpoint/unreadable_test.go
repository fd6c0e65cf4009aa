package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/stager-dev/stager/backends"
)

// One file without the right to read it ended a push with 77 and left out what came after
// it, and had an output try again for ever with growing pauses. It is named, and the rest
// is saved.
func TestUnreadable(t *testing.T) {
	denied := &os.PathError{Op: "openat", Path: "secret", Err: fs.ErrPermission}
	for _, tt := range []struct {
		err  error
		want string // "" when it is not for the file's permissions
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

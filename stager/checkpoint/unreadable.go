package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// unreadableError reports a file or directory of an output that stager's user may not read.
type unreadableError struct {
	path        string
	mode        fs.FileMode
	owner, user int
	err         error
}

func (e *unreadableError) Error() string {
	return fmt.Sprintf("%s cannot be read by stager, which runs as user %d: it belongs to user %d and has mode %04o; let its group read it (umask 027), or in Kubernetes write runAsUser, or the annotation stager.dev/privileges: files",
		e.path, e.user, e.owner, e.mode.Perm())
}

func (e *unreadableError) Unwrap() error { return e.err }

// explain returns err as an *unreadableError if missing permissions of name caused it. Other
// errors are returned as they are.
func explain(root *os.Root, name string, err error) error {
	if !errors.Is(err, unix.EACCES) {
		return err
	}
	if said := (*unreadableError)(nil); errors.As(err, &said) {
		return err
	}
	info, serr := root.Stat(name)
	if serr != nil {
		return err // a directory above it is the cause
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return err
	}
	return &unreadableError{path: name, mode: info.Mode(), owner: int(st.Uid), user: os.Geteuid(), err: err}
}

// explainWalk explains the error of a walk below root.
func explainWalk(root *os.Root, err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return explain(root, of.Path, err)
	}
	return err
}

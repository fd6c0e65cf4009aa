package download

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/window/disk"
)

// local wraps a failure of the disk in a *backends.LocalError, which distinguishes it from failures
// of the store. A full disk has kind NoSpace instead.
func local(name string, err error) error {
	var already *backends.LocalError
	if errors.As(err, &already) {
		err = already.Err
	}
	var changed *disk.ChangedError
	if errors.As(err, &changed) {
		return &backends.Error{Op: "write", Key: name, Kind: backends.Changed, Err: err}
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return &backends.Error{Op: "write", Key: name, Kind: backends.NoSpace, Err: &backends.LocalError{Err: err}}
	}
	return &backends.LocalError{Err: fmt.Errorf("%s: %w", name, err)}
}

// isKind reports whether err is an error of the store, not of the disk, and of one of the kinds.
func isKind(err error, kinds ...backends.Kind) bool {
	var e *backends.Error
	if !errors.As(err, &e) {
		return false
	}
	for _, kind := range kinds {
		if e.Kind == kind {
			return true
		}
	}
	return false
}

package fileshare

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/stager-dev/stager/backends"
)

// A LostError reports that a session has ended. Its pending calls may or may not have been carried
// out.
type LostError struct{ Err error }

func (e *LostError) Error() string { return "the connection was lost: " + Innermost(e.Err).Error() }
func (e *LostError) Unwrap() error { return e.Err }

// IsLost reports whether err leaves open if the server has carried out a request.
func IsLost(err error) bool {
	var lost *LostError
	return errors.As(err, &lost) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Innermost returns the root cause of err without the paths and layers around it. It keeps the
// address of a network operation.
func Innermost(err error) error {
	for {
		if op, ok := err.(*net.OpError); ok { //nolint:errorlint // each layer is looked at
			return op
		}
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// Ended returns an error of kind Canceled if the context has ended, else nil.
func Ended(ctx context.Context, op, key string) error {
	if ctx.Err() == nil {
		return nil
	}
	return &backends.Error{Op: op, Key: key, Kind: backends.Canceled, Err: context.Cause(ctx)}
}

// Cleanup returns a time-limited context for work that must run even after ctx has ended.
func Cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
}

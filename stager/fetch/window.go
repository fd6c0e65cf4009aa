package fetch

import (
	"context"
	"fmt"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

// Window brings the items of a rolling window in: item i is the i-th object.
type Window struct {
	store   *backends.Store
	objects []backends.Object
	verify  Verify
}

var _ window.Fetcher = (*Window)(nil)

// NewWindow makes a Fetcher of the objects of a store. The slice is kept.
func NewWindow(store *backends.Store, objects []backends.Object, verify Verify) *Window {
	return &Window{store, objects, verify}
}

// Fetch implements [window.Fetcher]; the digest is the checksum that the store and
// the bytes agree on, "" when the store has none. Bytes that cannot be verified,
// though it was insisted on, count as wrong ones.
func (w *Window) Fetch(ctx context.Context, item int, in *disk.Incoming) (digest string, err error) {
	sum, err := Object(ctx, w.store, w.objects[item], in, Options{Verify: w.verify})
	switch {
	case err == nil:
		return sum.String(), nil
	case isKind(err, backends.Corrupt, backends.Unsupported):
		err = fmt.Errorf("%w: %w", window.ErrCorrupt, err)
	case isKind(err, backends.Changed, backends.NotExist):
		err = fmt.Errorf("%w: %w", window.ErrGone, err)
	}
	return "", err
}

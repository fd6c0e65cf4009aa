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
	from    []From
	objects []backends.Object
	verify  Verify
}

// From is a store and how many objects are its.
type From struct {
	Store   *backends.Store
	Objects int
}

var _ window.Fetcher = (*Window)(nil)

// NewWindow makes a Fetcher of objects, which are those of one store after the other.
// The slices are kept.
func NewWindow(from []From, objects []backends.Object, verify Verify) *Window {
	return &Window{from, objects, verify}
}

// store is where an item comes from.
func (w *Window) store(item int) *backends.Store {
	i := 0
	for ; item >= w.from[i].Objects; i++ {
		item -= w.from[i].Objects
	}
	return w.from[i].Store
}

// Fetch implements [window.Fetcher]; the digest is the checksum that the store and
// the bytes agree on, "" when the store has none. Bytes that cannot be verified,
// though it was insisted on, count as wrong ones.
func (w *Window) Fetch(ctx context.Context, item int, in *disk.Incoming) (digest string, err error) {
	sum, err := Object(ctx, w.store(item), w.objects[item], in, Options{Verify: w.verify})
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

package download

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

// Window brings the items of a rolling window in: item i is the i-th object of a
// manifest, or the group of objects that it is.
type Window struct {
	from     []From
	manifest plan.Manifest
	verify   Verify
	begun    atomic.Bool
	room     func(backends.Object) int64 // for what is in an archive; nil: none is opened
	unpacks  *semaphore.Weighted         // memory of those that are being opened
}

// firstPiece is how long the ranges of the first shard are. It comes alone, as the window
// has it, so that there is nobody else to use the connections.
const firstPiece = 8 << 20

// From is a store and how many objects are its.
type From struct {
	Store   *backends.Store
	Objects int
}

var _ window.TreeFetcher = (*Window)(nil)

// NewWindow makes a Fetcher of a manifest's objects, which are those of one store after
// the other. The slices are kept.
func NewWindow(from []From, m plan.Manifest, verify Verify) *Window {
	return &Window{from: from, manifest: m, verify: verify, unpacks: semaphore.NewWeighted(unpackMemory)}
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
	opts := Options{Verify: w.verify}
	if w.begun.CompareAndSwap(false, true) {
		opts.Piece = firstPiece
	}
	sum, err := Object(ctx, w.store(item), w.manifest.Objects[item], in, opts)
	if err != nil {
		return "", forWindow(err)
	}
	return sum.String(), nil
}

// FetchTree implements [window.TreeFetcher].
func (w *Window) FetchTree(ctx context.Context, item int, in *disk.IncomingTree) error {
	if w.room != nil {
		return archiveForWindow(w.unpack(ctx, item, in))
	}
	store := w.store(item)
	crew, ctx := backends.NewWorkerPool(ctx, store.Connections)
	for name, obj := range w.manifest.Members[item].All() {
		if ctx.Err() != nil {
			break
		}
		if !in.Has(name, obj.Size) {
			crew.Go(func() error { return w.member(ctx, store, obj, in, name) })
		}
	}
	return crew.Wait()
}

// member brings one file of a tree.
func (w *Window) member(ctx context.Context, store *backends.Store, obj backends.Object, in *disk.IncomingTree, name string) error {
	file, err := in.File(name, obj.Size, string(obj.Version))
	if err != nil {
		return err
	}
	if _, err := Object(ctx, store, obj, file, Options{Verify: w.verify}); err != nil {
		err = forWindow(err)
		if errors.Is(err, window.ErrCorrupt) {
			return errors.Join(err, file.Discard())
		}
		return errors.Join(err, file.Close()) // what has arrived counts the next time
	}
	return in.Keep(name, file)
}

// forWindow has an error tell a window what to do.
func forWindow(err error) error {
	switch {
	case isKind(err, backends.Corrupt, backends.Unsupported):
		return fmt.Errorf("%w: %w", window.ErrCorrupt, err)
	case isKind(err, backends.Changed, backends.NotExist):
		return fmt.Errorf("%w: %w", window.ErrGone, err)
	}
	return err
}

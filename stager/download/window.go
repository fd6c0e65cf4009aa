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

// Window fetches the items of a rolling window: item i is the i-th object of a manifest, or a group
// of objects.
type Window struct {
	from     []From
	manifest plan.Manifest
	verify   Verify
	begun    atomic.Bool
	room     func(backends.Object) int64 // for the contents of an archive; nil: archives stay files
	unpacks  *semaphore.Weighted         // memory for archives that are being unpacked
}

// firstPiece is the length of the ranges of the first shard. The window fetches it alone, so it can
// use all connections.
const firstPiece = 8 << 20

// From is a store and the number of its objects.
type From struct {
	Store   *backends.Store
	Objects int
}

var _ window.TreeFetcher = (*Window)(nil)

// NewWindow returns a Fetcher for a manifest's objects, which are those of one store after the
// other. It retains the slices.
func NewWindow(from []From, m plan.Manifest, verify Verify) *Window {
	return &Window{from: from, manifest: m, verify: verify, unpacks: semaphore.NewWeighted(unpackMemory)}
}

// Share makes w use the memory of another Window that fetches for the same input. Call it before Fetch.
func (w *Window) Share(other *Window) { w.unpacks = other.unpacks }

// store returns the store of an item.
func (w *Window) store(item int) *backends.Store {
	i := 0
	for ; item >= w.from[i].Objects; i++ {
		item -= w.from[i].Objects
	}
	return w.from[i].Store
}

// Fetch implements [window.Fetcher]. The digest is the checksum that the store and the bytes agree
// on, or "" if the store has none. If a required verification is not possible, the bytes count as
// wrong.
func (w *Window) Fetch(ctx context.Context, item int, in *disk.Incoming) (digest string, err error) {
	opts := Options{Verify: w.verify}
	if w.begun.CompareAndSwap(false, true) {
		opts.Piece = firstPiece
	}
	obj, err := w.manifest.Objects.At(item)
	if err != nil {
		return "", err
	}
	sum, err := Object(ctx, w.store(item), obj, in, opts)
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
	pool, ctx := backends.NewWorkerPool(ctx, store.Connections)
	for name, obj := range w.manifest.Members[item].All() {
		if ctx.Err() != nil {
			break
		}
		if !in.Has(name, obj.Size) {
			pool.Go(func() error { return w.member(ctx, store, obj, in, name) })
		}
	}
	return pool.Wait()
}

// member fetches one file of a tree.
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
		return errors.Join(err, file.Close()) // the bytes so far are resumed next time
	}
	return in.Keep(name, file)
}

// forWindow converts an error to the type by which the window decides how to proceed.
func forWindow(err error) error {
	switch {
	case isKind(err, backends.Corrupt, backends.Unsupported):
		return fmt.Errorf("%w: %w", window.ErrCorrupt, err)
	case isKind(err, backends.Changed, backends.NotExist):
		return fmt.Errorf("%w: %w", window.ErrGone, err)
	}
	return err
}

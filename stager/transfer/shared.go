package transfer

import (
	"context"
	"errors"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/layout"
)

// Shared describes work that several workers share, each with its partition of the Listing. They
// agree on it through a record at the destination, see package layout: a worker with another
// listing or other options sends nothing.
type Shared struct {
	// Layout describes the work, except for the number of workers. An empty Listing means the
	// objects of the source, which then must not change until the copy ends.
	Layout layout.Layout
	// Begin is called before the first object is sent. May be nil.
	Begin func(context.Context, *layout.Worker) error
	// End is called when this worker's partition is at the destination. all reports whether the
	// partitions of all workers are. May be nil.
	End func(ctx context.Context, w *layout.Worker, all bool) error
}

// CopyLayout returns the layout of a copy, without the result of its listing.
func CopyLayout(cfg Config) layout.Layout {
	return layout.Layout{Kind: "copy", Name: cfg.Src.Name(), Source: cfg.Src.Name(), Options: map[string]string{
		"--include": layout.Quote(cfg.Listing.Filter.Include), "--exclude": layout.Quote(cfg.Listing.Filter.Exclude),
	}}
}

// shared returns nil if one worker does everything, so that no agreement is needed.
func (r *run) shared() *Shared {
	if r.Shared == nil && r.Object == nil && (r.Listing.Shard.Count > 1 || r.verifying) {
		r.Shared = &Shared{Layout: CopyLayout(r.Config)}
	}
	return r.Shared
}

// layout returns the layout of the work, with the result of the last walk.
func (r *run) layout() layout.Layout {
	l := r.shared().Layout
	l.Workers = r.Listing.Shard.Count
	if l.Listing == "" {
		l.Listing, l.Objects = r.listed.String(), r.listed.Objects()
	}
	return l
}

// join agrees with the other workers, if there are any.
func (r *run) join(ctx context.Context) (*layout.Worker, error) {
	s := r.shared()
	if s == nil {
		return nil, nil
	}
	w, err := layout.Join(ctx, r.Dst, r.layout(), r.Listing.Shard.Index)
	if err == nil && s.Begin != nil {
		err = s.Begin(ctx, w)
	}
	return w, err
}

// finish records that this worker's partition is at the destination. Objects are listed again while
// they are sent, and their positions determine the partition.
func (r *run) finish(ctx context.Context, w *layout.Worker) error {
	if w == nil {
		return nil
	}
	if l := r.layout(); !w.Lists(l) {
		return &backends.Error{Op: "copy", Store: r.summary.Source, Kind: backends.Changed, Err: errors.New(
			"the source changed during the copy, so objects may now belong to other workers; run the command again")}
	}
	all, err := w.Finish(ctx)
	if err == nil && r.Shared.End != nil {
		err = r.Shared.End(ctx, w, all)
	}
	return err
}

// verifyShared checks whether all workers have finished.
func (r *run) verifyShared(ctx context.Context) error {
	if s := r.shared(); s == nil || r.Listing.Shard.Count > 1 {
		return nil
	}
	return layout.Verify(ctx, r.Dst, r.layout())
}

package transfer

import (
	"context"
	"errors"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/layout"
)

// Shared describes work that several workers do, each its part of the Listing. They agree
// on it by a record at the destination, see package layout: a worker that lists another
// source, or has other options, sends nothing.
type Shared struct {
	// Layout describes the work, all but the count of workers. An empty Listing stands for
	// the objects of the source, which then must not change until the copy ends.
	Layout layout.Layout
	// Begin is called before the first object is sent. May be nil.
	Begin func(context.Context, *layout.Worker) error
	// End is called when this worker's part is at the destination, with whether the parts
	// of all workers are. May be nil.
	End func(ctx context.Context, w *layout.Worker, all bool) error
}

// CopyLayout returns the layout of a copy, but for what its listing finds.
func CopyLayout(cfg Config) layout.Layout {
	return layout.Layout{Kind: "copy", Name: cfg.Src.Name(), Source: cfg.Src.Name(), Options: map[string]string{
		"--include": layout.Quote(cfg.Listing.Filter.Include), "--exclude": layout.Quote(cfg.Listing.Filter.Exclude),
	}}
}

// shared returns nil where one worker does everything and need not agree with others.
func (r *run) shared() *Shared {
	if r.Shared == nil && r.Object == nil && (r.Listing.Shard.Count > 1 || r.verifying) {
		r.Shared = &Shared{Layout: CopyLayout(r.Config)}
	}
	return r.Shared
}

// layout is that of the work, with what the last walk found.
func (r *run) layout() layout.Layout {
	l := r.shared().Layout
	l.Workers = r.Listing.Shard.Count
	if l.Listing == "" {
		l.Listing, l.Objects = r.listed.String(), r.listed.Objects()
	}
	return l
}

// join agrees with the other workers, where there are any.
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

// finish says that this worker's part is at the destination. The objects are listed again
// while they are sent, and each belongs to the part that its position says.
func (r *run) finish(ctx context.Context, w *layout.Worker) error {
	if w == nil {
		return nil
	}
	if l := r.layout(); !w.Lists(l) {
		return &backends.Error{Op: "copy", Store: r.summary.Source, Kind: backends.Changed, Err: errors.New(
			"the source changed while it was copied, so objects may belong to other workers now; run it again")}
	}
	all, err := w.Finish(ctx)
	if err == nil && r.Shared.End != nil {
		err = r.Shared.End(ctx, w, all)
	}
	return err
}

// verifyShared looks whether all workers have finished.
func (r *run) verifyShared(ctx context.Context) error {
	if s := r.shared(); s == nil || r.Listing.Shard.Count > 1 {
		return nil
	}
	return layout.Verify(ctx, r.Dst, r.layout())
}

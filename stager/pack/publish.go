package pack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/layout"
)

// Layout describes the packing, except for the number of workers.
func (p *Packed) Layout() (layout.Layout, error) {
	index, err := p.Index()
	return layout.Layout{
		Kind: "pack", Name: p.prefix, Source: p.src.Name(), Listing: p.listed.String(), Objects: p.listed.Objects(),
		Options: p.options, Index: layout.IndexSum(index),
	}, err
}

// Publisher keeps the index at a destination correct: there is an index only if all shards of this
// packing, and no other shards, are present.
type Publisher struct {
	Packed    *Packed
	Dst       *backends.Store
	Overwrite bool // replace an index that stager did not publish, and remove shards of an older packing
	Log       *slog.Logger

	indexed bool // Check found an index
}

// Check refuses a destination with shards of another packing, unless they may be removed: trainers
// would read their samples twice.
func (p *Publisher) Check(ctx context.Context) error {
	_, _, err := p.look(ctx, nil)
	return err
}

// Begin removes an index that will no longer match the shards, before the first shard is sent.
func (p *Publisher) Begin(ctx context.Context, w *layout.Worker) error {
	if !p.indexed {
		return nil
	}
	want, err := p.Packed.Index()
	if err != nil {
		return err
	}
	got, err := p.index(ctx)
	if err != nil || got == nil || bytes.Equal(got, want) {
		return err
	}
	if !p.Overwrite && !w.Published(got) {
		return p.foreign()
	}
	return p.Dst.Delete(ctx, IndexKey)
}

// End publishes the index if all workers have finished. Before that it removes the shards of an
// older packing.
func (p *Publisher) End(ctx context.Context, w *layout.Worker, all bool) error {
	if !all {
		return nil
	}
	tally := w.Tally()
	has, stale, err := p.look(ctx, tally)
	if err != nil {
		return err
	}
	if all, err := w.All(ctx, tally); err != nil || !all {
		return err
	}
	if has != p.Packed.Shards() {
		return &backends.Error{Op: "pack", Store: p.Dst.Name(), Kind: backends.Changed, Err: fmt.Errorf(
			"only %d of %d shards exist although every worker has finished, so some were removed or replaced; run every worker again", has, p.Packed.Shards())}
	}
	for _, key := range stale {
		if err := p.Dst.Delete(ctx, key); err != nil {
			return err
		}
	}
	if len(stale) > 0 {
		p.Log.Info("removed shards of an older packing", "shards", len(stale), "first", stale[0])
	}
	return p.publish(ctx)
}

// look counts the shards at the destination, and finds those of another packing.
func (p *Publisher) look(ctx context.Context, tally *layout.Tally) (has int, stale []string, err error) {
	for obj, err := range p.Dst.List(ctx, "") {
		if backends.KindOf(err) == backends.NotExist && has == 0 {
			break // the directory does not exist yet
		}
		if err != nil {
			return 0, nil, err
		}
		if tally != nil {
			tally.Add(obj)
		}
		p.indexed = p.indexed || obj.Key == IndexKey
		if p.Packed.Stale(obj.Key) {
			if !p.Overwrite {
				return 0, nil, &backends.Error{Op: "pack", Store: p.Dst.Name(), Key: obj.Key, Kind: backends.Exist, Err: fmt.Errorf(
					"it is a shard of another packing, which now has only %d; remove old shards with --overwrite, or use another directory or --prefix", p.Packed.Shards())}
			}
			stale = append(stale, obj.Key)
		}
		if now, err := p.Packed.Stat(ctx, obj.Key); err == nil && now.Size == obj.Size {
			has++
		}
	}
	return has, stale, nil
}

// publish writes the index. Several workers may find that they were the last.
func (p *Publisher) publish(ctx context.Context) error {
	want, err := p.Packed.Index()
	if err != nil {
		return err
	}
	_, err = p.Dst.PutBytes(ctx, IndexKey, want, backends.CreateOptions{IfAbsent: true})
	if backends.KindOf(err) != backends.Exist {
		return err
	}
	switch got, err := p.index(ctx); {
	case err != nil:
		return err
	case bytes.Equal(got, want):
		return nil
	case !p.Overwrite:
		return p.foreign()
	}
	_, err = p.Dst.PutBytes(ctx, IndexKey, want, backends.CreateOptions{})
	return err
}

// indexMax is more than the size of an index for the maximum number of shards.
const indexMax = 1 << 30

// index returns the index at the destination, or nil if there is none.
func (p *Publisher) index(ctx context.Context) ([]byte, error) {
	got, _, err := p.Dst.ReadAll(ctx, IndexKey, indexMax)
	if backends.KindOf(err) == backends.NotExist {
		return nil, nil
	}
	return got, err
}

func (p *Publisher) foreign() error {
	return &backends.Error{Op: "pack", Store: p.Dst.Name(), Key: IndexKey, Kind: backends.Exist, Err: errors.New(
		"it describes other shards, and stager did not write it here: move it away, or replace it with --overwrite")}
}

// Verify compares the index with that of this packing, and checks whether every worker has
// finished, with this size of shards and this order. The shards were compared before.
func (p *Publisher) Verify(ctx context.Context) error {
	l, err := p.Packed.Layout()
	if err != nil {
		return err
	}
	if err := layout.Verify(ctx, p.Dst, l, "--shard-size", "--shuffle"); err != nil {
		return err
	}
	want, err := p.Packed.Index()
	if err != nil {
		return err
	}
	got, err := p.index(ctx)
	switch {
	case err != nil:
		return err
	case got == nil:
		return &backends.Error{Op: "verify", Store: p.Dst.Name(), Key: IndexKey, Kind: backends.Changed, Err: errors.New(
			"the index is missing; run every worker again")}
	case !bytes.Equal(got, want):
		return &backends.Error{Op: "verify", Store: p.Dst.Name(), Key: IndexKey, Kind: backends.Corrupt, Err: errors.New(
			"the index describes other shards; run every worker again with --overwrite")}
	}
	return nil
}

package stager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window"
)

// Bounds of what is read into memory besides the data.
const (
	maxList   = 256 << 20 // a list of names, an index
	maxBeside = 1 << 20   // what lies beside one shard
)

// manifest lists the source of a window, and reads what its order needs to know: a list
// of names, an index. These are no data, also where they lie among it.
func (d *Daemon) manifest(ctx context.Context, spec plan.Input, store *backends.Store) (m plan.Manifest, err error) {
	besides := make(map[string]backends.Object)
	classes := spec.Order.By == plan.Balanced
	from := store.List(ctx, "")
	if classes && spec.Index == "" {
		from = aside(from, func(obj backends.Object) bool {
			if !strings.HasSuffix(obj.Key, ".json") {
				return false
			}
			besides[obj.Key] = obj
			return true
		})
	}
	from = aside(from, func(obj backends.Object) bool { return obj.Key == spec.Index || obj.Key == spec.Order.List })
	for obj, err := range listing(spec).Choose(store.Name(), from) {
		if err != nil {
			return m, err
		}
		m.Objects = append(m.Objects, obj)
	}
	if spec.Order.By == plan.ByList {
		all := len(m.Objects)
		err := d.readAside(ctx, spec, store, "list", spec.Order.List, func(text []byte) (err error) {
			m, err = m.Arrange(bytes.NewReader(text))
			return err
		})
		if err != nil {
			return m, err
		}
		if out := all - len(m.Objects); out > 0 {
			d.log.Info("the list does not name all objects of the source; the others stay out", "input", spec.Name, "named", len(m.Objects), "out", out)
		}
	}
	var index plan.Index
	switch {
	case spec.Index != "":
		err = d.readAside(ctx, spec, store, "index", spec.Index, func(text []byte) error {
			return index.ReadLines(bytes.NewReader(text))
		})
	case classes:
		err = readBeside(ctx, store, m.Objects, besides, &index)
	default:
		return m, nil
	}
	if err != nil {
		return m, err
	}
	return m, m.Count(&index, classes)
}

// aside leaves out of a listing what pick takes.
func aside(from iter.Seq2[backends.Object, error], pick func(backends.Object) bool) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		for obj, err := range from {
			if err == nil && pick(obj) {
				continue
			}
			if !yield(obj, err) {
				return
			}
		}
	}
}

// readAside reads what a plan names beside its data: an object of the source, or a URL,
// which the input's credentials open too.
func (d *Daemon) readAside(ctx context.Context, spec plan.Input, store *backends.Store, what, name string, read func([]byte) error) error {
	key := name
	if plan.Aside(name) {
		opened, err := d.open(ctx, name, spec.Credentials)
		if err != nil {
			return fmt.Errorf("the %s: %w", what, err)
		}
		defer opened.Close() //nolint:errcheck // nothing was written
		folder, obj, err := opened.Self(ctx)
		if err != nil {
			return fmt.Errorf("the %s: %w", what, err)
		}
		store, key = folder, obj.Key
	}
	text, _, err := store.ReadAll(ctx, key, maxList)
	if err != nil {
		return fmt.Errorf("the %s: %w", what, err)
	}
	if err := read(text); err != nil {
		var faults plan.Faults
		if errors.As(err, &faults) {
			return fmt.Errorf("its %s %s is not good:\n%w", what, name, faults)
		}
		return fmt.Errorf("its %s %s: %w", what, name, err)
	}
	return nil
}

// readBeside reads the file beside each shard, of those that were listed.
func readBeside(ctx context.Context, store *backends.Store, shards []backends.Object, besides map[string]backends.Object, index *plan.Index) error {
	var mu sync.Mutex // guards index
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(store.Connections())
	for _, shard := range shards {
		obj, there := besides[plan.Beside(shard.Key)]
		if !there {
			continue // Count tells
		}
		group.Go(func() error {
			text, _, err := store.ReadAll(ctx, obj.Key, maxBeside)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if err := index.ReadBeside(shard.Key, text); err != nil {
				return &backends.Error{Op: "read", Store: store.Name(), Key: obj.Key, Kind: backends.Invalid, Err: err}
			}
			return nil
		})
	}
	return group.Wait()
}

// items are a manifest's objects for a window.
func items(m plan.Manifest) []window.Item {
	items := make([]window.Item, len(m.Objects))
	for i, obj := range m.Objects {
		items[i] = window.Item{Name: plan.FlatName(obj.Key), Size: obj.Size, Digest: obj.Sum.String(), Version: string(obj.Version)}
		if m.Counts != nil {
			items[i].Samples = m.Counts[i].Samples
		}
	}
	return items
}

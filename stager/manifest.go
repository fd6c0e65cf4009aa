package stager

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/api"
	"github.com/stager-dev/stager/stager/download"
	"github.com/stager-dev/stager/stager/internal/catalogue"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

// Limits for what is read into memory besides the data.
const (
	maxList   = 256 << 20 // a list of names or an index
	maxBeside = 1 << 20   // the metadata file of one shard
)

// manifest lists the sources of a window and reads the files that its order needs: a list of names,
// an index. These files are not data, even if they lie among the data.
// The objects are also added to sum. An old list replaces that of the only source.
func (d *Daemon) manifest(ctx context.Context, in *input, stores []*backends.Store, old *catalogue.Catalogue, sum *summary) (m plan.Manifest, from []download.From, err error) {
	if old == nil {
		defer d.listing(in)()
	}
	spec := in.spec
	var parts []plan.Manifest
	var shares []plan.Share
	for i, source := range spec.From() {
		part, err := plan.Manifest{Objects: old}, error(nil)
		if old == nil {
			part, err = d.list(ctx, in, source, stores[i], sum)
		}
		if err != nil {
			return m, nil, err
		}
		parts = append(parts, part)
		shares = append(shares, plan.Share{Source: stores[i].Name(), Objects: part.Len(), Weight: source.Weight})
		from = append(from, download.From{Store: stores[i], Objects: part.Len()})
	}
	if len(spec.Sources) == 0 {
		m = parts[0]
	} else {
		m = plan.Join(parts, shares)
		err = m.CheckShares(spec.Order)
	}
	m.Unpacked = spec.Unpack == plan.UnpackAuto
	return m, from, err
}

// listing reports that an input is being listed, until the function that it returns is called.
func (d *Daemon) listing(in *input) (ended func()) {
	in.found.Store(0)
	in.listing.Store(true)
	return func() {
		in.listing.Store(false)
		d.windowMetrics.Listing(in.spec.Name, 0)
	}
}

// list returns the manifest of one source, see manifest.
func (d *Daemon) list(ctx context.Context, in *input, source plan.Source, store *backends.Store, sum *summary) (m plan.Manifest, err error) {
	spec := in.spec
	besides := make(map[string]backends.Object)
	classes := spec.Order.By == plan.Balanced
	counts := classes || spec.Order.Equal()
	grouped := spec.Window.Grouped()
	groups := plan.NewGroups(*spec.Window, disk.Room, 0)
	chosen := listing(spec)
	chosen.Skipped = plan.LogSkipped(d.log.With("input", spec.Name))
	chosen.Aside = func(obj backends.Object) bool {
		if obj.Key == source.Index || obj.Key == spec.Order.List {
			return true
		}
		beside := counts && source.Index == "" && !grouped && strings.HasSuffix(obj.Key, ".json")
		if beside {
			besides[obj.Key] = obj
		}
		return beside
	}
	listed := catalogue.NewWriter(in.scratch)
	defer func() { err = errors.Join(err, listed.Abort()) }()
	add, end := in.writer(listed)
	defer end()
	if grouped {
		add = groups.Add
	}
	for obj, err := range chosen.Objects(ctx, store) {
		if err == nil {
			err = add(obj)
		}
		if err != nil {
			return m, err
		}
		sum.add(obj)
		if n := in.found.Add(1); n%1000 == 0 {
			d.windowMetrics.Listing(spec.Name, n)
		}
	}
	end()
	if grouped {
		m = groups.Manifest()
	} else if m.Objects, err = d.finish(in, listed, store); err != nil {
		return m, err
	}
	if spec.Order.By == plan.ByList {
		all := m.Len()
		err := d.readAside(ctx, source, store, "list", spec.Order.List, func(text []byte) (err error) {
			m, err = m.Arrange(bytes.NewReader(text))
			return err
		})
		if err != nil {
			return m, err
		}
		if out := all - m.Len(); out > 0 {
			d.log.Info("list does not contain all objects of the source, skipping the others", "input", spec.Name, "named", m.Len(), "out", out)
		}
	}
	var index plan.Index
	switch {
	case source.Index != "":
		err = d.readAside(ctx, source, store, "index", source.Index, func(text []byte) error {
			return index.ReadLines(bytes.NewReader(text))
		})
	case counts:
		err = readBeside(ctx, store, m.Objects, besides, &index)
	default:
		return m, nil
	}
	if err != nil {
		return m, err
	}
	return m, m.Count(&index, classes)
}

// scratch creates a file for a list of objects on the disk of the window. It may take what the files
// that an earlier process left there, and the lists of other sources, leave of the window's size.
func (in *input) scratch() (file *os.File, room int64, err error) {
	taken, err := disk.Taken(in.spec.Path)
	if err != nil {
		return nil, 0, err
	}
	lists, err := in.listedOnDisk()
	if err != nil {
		return nil, 0, err
	}
	file, err = disk.Scratch(in.spec.Path)
	return file, int64(in.spec.Window.Size) - taken - lists, err
}

// finish finishes a list of objects, which closeLists releases.
func (d *Daemon) finish(in *input, list *catalogue.Writer, store *backends.Store) (*catalogue.Catalogue, error) {
	listed, err := list.Finish()
	if err != nil {
		return nil, err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.listed = append(in.listed, listed)
	if in.unnamed, err = complete(in.spec, listed, store); err != nil {
		d.log.Info(notKept, "input", in.spec.Name, "error", err)
	}
	return listed, nil
}

// readAside reads a file that the plan names besides its data: an object of the source, or a URL,
// for which the input's credentials are used.
func (d *Daemon) readAside(ctx context.Context, source plan.Source, store *backends.Store, what, name string, read func([]byte) error) error {
	key := name
	if plan.Aside(name) {
		opened, err := d.open(ctx, name, source.Credentials)
		if err != nil {
			return fmt.Errorf("the %s: %w", what, err)
		}
		defer opened.Close() // nothing was written
		directory, obj, err := opened.Self(ctx)
		if err != nil {
			return fmt.Errorf("the %s: %w", what, err)
		}
		store, key = directory, obj.Key
	}
	text, _, err := store.ReadAll(ctx, key, maxList)
	if err != nil {
		return fmt.Errorf("the %s: %w", what, err)
	}
	if err := read(text); err != nil {
		var faults plan.Faults
		if errors.As(err, &faults) {
			return fmt.Errorf("its %s %s is invalid:\n%w", what, name, faults)
		}
		return fmt.Errorf("its %s %s: %w", what, name, err)
	}
	return nil
}

// readBeside reads the metadata file of each listed shard.
func readBeside(ctx context.Context, store *backends.Store, shards plan.Objects, besides map[string]backends.Object, index *plan.Index) error {
	var mu sync.Mutex // guards index
	pool, ctx := backends.NewWorkerPool(ctx, store.Connections)
	for i := range shards.Len() {
		shard, err := shards.At(i)
		if err != nil {
			return errors.Join(err, pool.Wait())
		}
		obj, there := besides[plan.Beside(shard.Key)]
		if !there {
			continue // Count reports it
		}
		pool.Go(func() error {
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
	return pool.Wait()
}

// parts provides a node's part of each epoch.
type parts struct {
	log   *slog.Logger
	spec  plan.OrderSpec
	m     plan.Manifest
	whole func(epoch int) []int32
	node  plan.Shard

	mu     sync.Mutex // guards ending
	ending map[int]plan.Part
}

func newParts(log *slog.Logger, spec plan.OrderSpec, m plan.Manifest, node plan.Shard) (*parts, error) {
	whole, err := plan.Order(spec, m)
	return &parts{log: log, spec: spec, m: m, whole: whole, node: node, ending: make(map[int]plan.Part)}, err
}

// order returns the order of all nodes for the window, which selects the node's positions itself.
func (p *parts) order(epoch int) window.Order {
	switch {
	case p.spec.Equal():
	case p.spec.Listed():
		return window.Sequence(p.m.Len())
	case p.spec.By == plan.Weighted: // some objects come more than once
		return window.Indexes(p.whole(epoch))
	default:
		return window.Permuted(p.m.Len(), func() []int32 { return p.whole(epoch) })
	}
	part := p.m.Equalize(p.whole(epoch), p.node, p.spec.Equalize)
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, reported := p.ending[epoch]; !reported {
		p.log.Info("equalized samples per node for this epoch", "epoch", epoch, "samples", part.Samples)
	}
	p.ending[epoch] = plan.Part{Last: part.Last, LastSamples: part.LastSamples}
	return window.Indexes(part.Order)
}

// trim returns which samples of the epoch's last shard belong to the node.
func (p *parts) trim(epoch int) (pos, samples int, some bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	end, some := p.ending[epoch]
	return end.Last, end.LastSamples, some
}

// quality measures how well mixed the reported deliveries were.
func (d *Daemon) quality(name string, report iter.Seq2[window.Delivery, error]) (plan.Quality, error) {
	if _, err := d.window(name); err != nil {
		return plan.Quality{}, err
	}
	i := slices.IndexFunc(d.inputs, func(in *input) bool { return in.spec.Name == name })
	in := d.inputs[i]
	in.mu.Lock()
	m, whole := in.manifest, in.whole
	in.mu.Unlock()
	if whole == nil {
		return plan.Quality{}, api.ErrNotYet
	}
	type taken struct {
		at     int64 // when
		object int32
	}
	var all []taken
	var order window.Order
	for was, err := range report {
		if errors.Is(err, fs.ErrNotExist) {
			break // no report yet
		}
		if err != nil {
			return plan.Quality{}, err
		}
		if order == nil {
			order = whole.Order(was.Epoch)
		}
		if was.Skipped != "" || was.Pos >= order.Len() || order.At(was.Pos) == window.Nobody {
			continue
		}
		all = append(all, taken{was.Leased.UnixNano(), int32(order.At(was.Pos))})
	}
	slices.SortStableFunc(all, func(a, b taken) int { return cmp.Compare(a.at, b.at) })
	delivered := make([]int32, len(all))
	for i, t := range all {
		delivered[i] = t.object
	}
	return m.Quality(delivered, in.spec.Order.Over), nil
}

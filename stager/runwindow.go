package stager

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/download"
	"github.com/stager-dev/stager/stager/internal/catalogue"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

// runWindow lists the sources, unless the process before this one has left its list, and runs the
// window.
func (d *Daemon) runWindow(ctx context.Context, in *input, stores []*backends.Store) error {
	if listed, sum := d.oldList(ctx, in, stores[0]); listed != nil {
		err := d.runListed(ctx, in, stores, listed, sum)
		if !errors.Is(err, errOtherList) {
			return err
		}
		if err := in.closeLists(); err != nil {
			return err
		}
	}
	if first := d.newBeginning(in.spec); first != nil {
		return d.runWhileListed(ctx, in, stores, first)
	}
	cfg, err := d.windowConfig(ctx, in, stores, nil, newSummary(in.spec))
	if err != nil {
		return err
	}
	return d.runNew(ctx, in, cfg)
}

// runNew runs the window of a new list.
func (d *Daemon) runNew(ctx context.Context, in *input, cfg window.Config) error {
	w, err := window.New(cfg)
	if err != nil {
		return err
	}
	d.keepList(in)
	return d.runOpen(ctx, in, w, cfg.Items.Len(), knowledge{
		tell:  func(context.Context, *window.Window) {},
		again: func() (window.Config, error) { return cfg, nil },
	})
}

// runListed runs the window of an old list. It returns an error that is errOtherList if the list cannot
// be used any more; the window is then closed.
func (d *Daemon) runListed(ctx context.Context, in *input, stores []*backends.Store, old *catalogue.Catalogue, sum *summary) error {
	cfg, err := d.windowConfig(ctx, in, stores, old, sum)
	var w *window.Window
	if err == nil {
		w, err = window.New(cfg)
	}
	if err != nil || w.Epoch() >= cfg.Epochs {
		// It failed, perhaps because of objects that are no more, or all is delivered.
		d.log.Info("listing the source again", "input", in.spec.Name, "error", err)
		if w != nil {
			err = w.Close()
		}
		return errors.Join(errOtherList, err)
	}
	checked, stop := context.WithCancel(ctx)
	check := d.checkList(checked, in, stores[0], cfg.Manifest)
	defer func() { stop(); <-check.done }()
	in.setCheck(check)
	defer in.setCheck(nil)
	return d.runOpen(ctx, in, w, cfg.Items.Len(), knowledge{
		tell: check.apply,
		again: func() (window.Config, error) {
			cfg.Unconfirmed = check.pending()
			err := check.failed()
			if err != nil {
				d.dropList(in)
			}
			return cfg, err
		},
	})
}

// knowledge is what becomes known about the list of a window while it runs.
type knowledge struct {
	tell  func(context.Context, *window.Window) // tells a window, or returns when the context ends
	again func() (window.Config, error)         // how a window is opened again after it was rewound; called before it is closed
}

// runOpen runs a window with a number of shards, and opens it again whenever it is rewound.
func (d *Daemon) runOpen(ctx context.Context, in *input, w *window.Window, shards int, known knowledge) error {
	for {
		in.setWindow(w)
		d.noteChange()
		if w.Beginning() {
			d.log.Info("window open with the first objects of its source, listing the others", "input", in.spec.Name, "shards", shards, "limit", backends.Size(in.spec.Window.Size), "order", in.spec.Order.By, "part", d.cfg.Shard)
		} else {
			d.log.Info("window open", "input", in.spec.Name, "shards", shards, "limit", backends.Size(in.spec.Window.Size), "order", in.spec.Order.By, "part", d.cfg.Shard)
		}
		err := ended(d.runAndReport(ctx, w, known.tell))
		switch {
		case err == nil && in.spec.Window.OnBad == plan.BadSkip:
			return w.Skipped() // training continued without them
		case err == nil:
			return nil
		case !errors.Is(err, window.ErrRewound):
			d.dropList(in)
			return err
		}
		in.setWindow(nil)
		cfg, err := known.again()
		if err := errors.Join(err, w.Close()); err != nil {
			return err
		}
		if w, err = window.New(cfg); err != nil {
			return err
		}
		shards = cfg.Items.Len()
	}
}

// windowConfig lists the sources, unless there is an old list, and returns the window's configuration.
func (d *Daemon) windowConfig(ctx context.Context, in *input, stores []*backends.Store, old *catalogue.Catalogue, sum *summary) (window.Config, error) {
	m, from, err := d.manifest(ctx, in, stores, old, sum)
	if err != nil {
		return window.Config{}, err
	}
	scratch, err := in.listedOnDisk()
	if err != nil {
		return window.Config{}, err
	}
	in.mu.Lock()
	in.manifest = m
	in.mu.Unlock()
	cfg, err := d.configOf(in, m, from, sum, scratch)
	if err != nil {
		return window.Config{}, err
	}
	cfg.Unconfirmed = old != nil
	in.mu.Lock()
	in.whole = &cfg
	in.mu.Unlock()
	d.noteChange()
	return cfg, nil
}

// configOf returns the configuration of a window of objects, whose lists take scratch bytes of the disk.
func (d *Daemon) configOf(in *input, m plan.Manifest, from []download.From, sum *summary, scratch int64) (window.Config, error) {
	spec, shard := in.spec, d.cfg.Shard
	if err := m.CheckParts(shard, spec.Order.Equalize); err != nil {
		return window.Config{}, err
	}
	parts, err := newParts(d.log.With("input", spec.Name), spec.Order, m, shard)
	if err != nil {
		return window.Config{}, err
	}
	digest, extent, err := sum.of(m, spec.Order)
	if err != nil {
		return window.Config{}, err
	}
	fetcher := download.NewWindow(from, m, download.Verify(spec.Verify))
	if spec.Unpack == plan.UnpackAuto {
		fetcher.Unpack(func(obj backends.Object) int64 { return spec.UnpackedRoom(obj.Key, obj.Size, disk.Block) })
	}
	in.mu.Lock()
	if in.fetcher != nil {
		fetcher.Share(in.fetcher)
	}
	in.fetcher = fetcher
	in.mu.Unlock()
	return window.Config{
		Input: spec.Name, Dir: spec.Path, Size: int64(spec.Window.Size), CountOwn: true, MinFree: int64(spec.Window.MinFree),
		Release: window.Release(spec.Window.Release), Reuse: window.Reuse(spec.Window.Reuse), MinAge: time.Duration(spec.Window.MinAge),
		MinReady:     window.MinReady{Files: spec.Window.MinReady.Files, Bytes: int64(spec.Window.MinReady.Bytes)},
		LeaseTimeout: time.Duration(spec.Window.LeaseTimeout), AnyOrder: spec.Window.AnyOrder, Epochs: spec.Order.Epochs, Groups: spec.Window.Groups,
		Items: items{spec, m}, Extent: extent, Scratch: scratch, Manifest: digest, Part: shard.String(),
		Begins: func(name string) int { return plan.Begins(spec, m.Objects, name) },
		Order:  parts.order, Trim: parts.trim, Owns: shard.Owns, Parallel: spec.Window.Parallel,
		Fetcher: fetcher, Write: disk.Write(spec.Write), OnBad: onBad(spec.Window.OnBad),
		Log: d.log, Metrics: d.windowMetrics,
	}, nil
}

// listedOnDisk returns the bytes of disk that the lists of the input's objects take.
func (in *input) listedOnDisk() (sum int64, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, listed := range in.listed {
		n, err := listed.OnDisk()
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// onBad returns the window's policy for bad positions, from the plan.
func onBad(is string) string {
	if is == plan.BadSkip || is == plan.BadAllow {
		return window.BadSkip
	}
	return window.BadFail
}

func (in *input) setWindow(w *window.Window) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.window = w
}

// runAndReport runs a window, wakes waiting goroutines when it becomes ready, and tells it what becomes
// known.
func (d *Daemon) runAndReport(ctx context.Context, w *window.Window, tell func(context.Context, *window.Window)) error {
	var teller sync.WaitGroup
	defer teller.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	teller.Go(func() { tell(ctx, w) })
	teller.Go(func() {
		select {
		case <-w.Readied():
			d.noteChange()
		case <-ctx.Done():
		}
	})
	if err := w.Run(ctx); err != nil {
		return err
	}
	// All shards are delivered, but a client may still rewind.
	select {
	case <-w.Rewound():
		return window.ErrRewound
	case <-ctx.Done():
		return nil
	}
}

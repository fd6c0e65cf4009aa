package stager

import (
	"context"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/download"
	"github.com/stager-dev/stager/stager/internal/catalogue"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window"
)

// A window in the order of the names does not wait for the last page of a long listing: it begins with the
// first objects, and gets the whole list once it is complete. Until then no epoch ends, the window has no
// cursor, and what is wrong with the rest of the list is unknown. All that would stop a window with these
// objects alone stops it from beginning, too: then it waits for the list.
//
// Only a directory without state, or with the state of a beginning, is begun with: whether other state is
// that of the listed plan is known at the end of the list.

const (
	// beginAfter is how long a listing takes before the window begins.
	beginAfter = time.Second
	// beginPause is the time between two looks at a listing that has too few objects to begin with.
	beginPause = 50 * time.Millisecond
	// beginLeast and beginMost are how many objects a window begins with. They are in memory.
	beginLeast = 100
	beginMost  = 1 << 14
	// listShare is the share of the window's size that the list may take on the disk meanwhile, at most
	// what a list of which a later process reads anything takes.
	listShare = 2
)

// beginning collects the first objects of a listing.
type beginning struct {
	least int
	after time.Duration // how long the listing takes before the window begins
	share int64         // of the window's size for the file of the whole list

	mu    sync.Mutex        // guards all below; held while the list takes space, and so before an input's
	whole *catalogue.Writer // the whole list; nil before it begins
	first *catalogue.Writer // nil once it is taken
	n     int               // objects of first
	sum   *summary          // of them
}

// newBeginning returns nil if the input must wait for its list.
func (d *Daemon) newBeginning(spec plan.Input) *beginning {
	reuse := window.Reuse(spec.Window.Reuse)
	if !keepsList(spec) || spec.Order.By != plan.ByName || spec.Window.Groups > 1 || reuse != "" && reuse != window.ReuseNone {
		return nil
	}
	b := &beginning{
		least: max(d.beginLeast, d.cfg.Shard.Count), after: d.beginAfter, share: min(int64(spec.Window.Size)/listShare, catalogue.MostKept),
		first: catalogue.InMemory(), sum: newSummary(spec),
	}
	state, known := window.PlanIn(spec.Path)
	n, _ := plan.ParseBeginning(state)
	switch {
	case n > 0: // the process before this one began with n objects, and may have used all of them
		b.least, b.after = max(b.least, n), beginPause
	case state != "" || !known:
		return nil
	}
	return b
}

// listed makes the objects that are added those of a list.
func (b *beginning) listed(whole *catalogue.Writer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.whole = whole
}

// add adds the next object of the listing to the whole list.
func (b *beginning) add(obj backends.Object) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first != nil && b.n < beginMost {
		if err := b.first.Add(obj); err != nil {
			return err
		}
		b.sum.add(obj)
		b.n++
	}
	return b.whole.Add(obj)
}

// take returns the first objects of the list, if there are enough, and how much of the disk the whole
// list will take at most. It returns them once.
func (b *beginning) take() (first *catalogue.Catalogue, room int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first == nil || b.n < b.least {
		return nil, 0, nil
	}
	defer func() { b.first = nil }()
	if room, err = b.whole.Reserve(b.share); err != nil {
		return nil, 0, err
	}
	first, err = b.first.Finish()
	return first, room, err
}

// end ends the collection. The whole list may be used by others afterwards.
func (b *beginning) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.first = nil
}

// wholeList is the list of a window that begins before its sources are listed.
type wholeList struct {
	done chan struct{}
	cfg  window.Config // once done is closed
	err  error         // why there is no list
}

// runWhileListed lists the source and runs the window, which begins with the first objects.
func (d *Daemon) runWhileListed(ctx context.Context, in *input, stores []*backends.Store, first *beginning) error {
	in.begin(first)
	listing, stop := context.WithCancel(ctx)
	l := &wholeList{done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.cfg, l.err = d.windowConfig(listing, in, stores, nil, newSummary(in.spec))
	}()
	defer func() { stop(); <-l.done }()
	w, shards, err := d.begin(ctx, in, stores[0], first, l)
	if err != nil {
		return err
	}
	if w == nil {
		if <-l.done; l.err != nil {
			return l.err
		}
		return d.runNew(ctx, in, l.cfg)
	}
	return d.runOpen(ctx, in, w, shards, knowledge{
		tell:  func(ctx context.Context, w *window.Window) { d.continueWindow(ctx, in, w, l) },
		again: func() (window.Config, error) { return l.cfg, l.err }, // only a window with the whole list is rewound
	})
}

// begin opens the window with the first objects of the list. It returns nil if the list is complete
// before, or if the window does not work with these objects.
func (d *Daemon) begin(ctx context.Context, in *input, store *backends.Store, first *beginning, l *wholeList) (w *window.Window, shards int, err error) {
	defer in.begin(nil)
	for wait := first.after; ; wait = beginPause {
		select {
		case <-l.done:
			return nil, 0, nil
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		case <-time.After(wait):
		}
		objects, room, err := first.take()
		if objects == nil && err == nil {
			continue
		}
		if err == nil {
			w, err = d.openBeginning(in, store, objects, first.sum, room)
		}
		if err != nil {
			d.log.Info("window cannot begin before its source is listed", "input", in.spec.Name, "error", err)
			return nil, 0, nil
		}
		// The list of a process before this one is not that of the state any more.
		d.dropList(in)
		return w, objects.Len(), nil
	}
}

// openBeginning opens a window of the first objects of a list that takes up to room bytes of the disk.
func (d *Daemon) openBeginning(in *input, store *backends.Store, objects *catalogue.Catalogue, sum *summary, room int64) (*window.Window, error) {
	m := plan.Manifest{Objects: objects, Unpacked: in.spec.Unpack == plan.UnpackAuto}
	cfg, err := d.configOf(in, m, []download.From{{Store: store, Objects: m.Len()}}, sum, room)
	if err != nil {
		return nil, err
	}
	cfg.Beginning, cfg.Manifest = true, plan.Beginning(m.Len(), cfg.Manifest)
	return window.New(cfg)
}

// continueWindow gives a window the rest of its list once that is complete. What is wrong with the rest
// ends the window.
func (d *Daemon) continueWindow(ctx context.Context, in *input, w *window.Window, l *wholeList) {
	if !w.Beginning() {
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-l.done:
	}
	if l.err != nil {
		if ctx.Err() == nil {
			w.Fail(l.err)
		}
		return
	}
	// First: a process after this one needs a list of all that has state.
	d.keepList(in)
	if w.Continue(ctx, l.cfg) == nil {
		d.log.Info("source is listed, the window continues with all its objects", "input", in.spec.Name, "shards", l.cfg.Items.Len())
	}
	d.noteChange()
}

// begin sets what collects the first objects of the input's listing; nil: nothing.
func (in *input) begin(first *beginning) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.first = first
}

// writer returns where the listing of a source adds its objects, and what it calls at the end.
func (in *input) writer(whole *catalogue.Writer) (add func(backends.Object) error, end func()) {
	in.mu.Lock()
	first := in.first
	in.mu.Unlock()
	if first == nil {
		return whole.Add, func() {}
	}
	first.listed(whole)
	return first.add, first.end
}

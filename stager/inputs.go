package stager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/api"
	"github.com/stager-dev/stager/stager/download"
	"github.com/stager-dev/stager/stager/hubcache"
	"github.com/stager-dev/stager/stager/internal/catalogue"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

// input is the runtime state of one input of the plan.
type input struct {
	spec plan.Input

	listing atomic.Bool  // the sources of a window are being listed
	found   atomic.Int64 // objects that the listing has found so far

	mu       sync.Mutex             // guards all below
	stores   []*backends.Store      // one per source
	manifest plan.Manifest          // windows only
	listed   []*catalogue.Catalogue // the files of manifest
	window   *window.Window         // nil until the source is listed
	unnamed  *os.File               // of listed, complete; nil if a later process cannot use it
	check    *listCheck             // of listed; nil if this process has listed the source
	first    *beginning             // what the listing adds its first objects to; nil: nothing
	whole    *window.Config         // with all objects; nil until the source is listed
	fetcher  *download.Window       // that of the last configuration
	progress *download.Progress     // prefetch only
	fetched  bool                   // the prefetch is complete
	absent   error                  // why an optional input is absent; it counts as ready
	err      error                  // the input has failed
}

func newInput(spec plan.Input) *input { return &input{spec: spec} }

// state reports whether a trainer may start to use the input, or returns the input's failure.
func (in *input) state() (ready bool, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.window != nil {
		return in.window.Ready(), in.err
	}
	return in.fetched || in.absent != nil, in.err
}

func (in *input) snapshot() api.Input {
	ready, err := in.state()
	in.mu.Lock()
	defer in.mu.Unlock()
	s := api.Input{
		Name: in.spec.Name, Mode: in.spec.Mode, Path: in.spec.Path,
		Ready: ready, Prefetch: in.progress,
	}
	var names []string
	for i, from := range in.spec.From() {
		if i < len(in.stores) {
			from.Source = in.stores[i].Name()
		}
		names = append(names, from.Source)
	}
	s.Source = strings.Join(names, ", ")
	if in.window != nil {
		w := in.window.Status()
		s.Window = &w
	}
	if in.listing.Load() {
		n := in.found.Load()
		s.Listing = &n
	}
	if err = cmp.Or(err, in.absent); err != nil {
		s.Error = err.Error()
	}
	return s
}

// close releases the directory and the connections.
func (in *input) close() (err error) {
	defer func() { err = errors.Join(err, in.closeLists()) }()
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.window != nil {
		err = in.window.Close()
	}
	for _, store := range in.stores {
		err = errors.Join(err, store.Close())
	}
	return err
}

// feed fills an input until it is complete or ctx ends; both return nil.
func (d *Daemon) feed(ctx context.Context, in *input) error {
	defer d.noteChange()
	err := ended(d.fill(ctx, in))
	if err == nil {
		return nil
	}
	err = fmt.Errorf("input %s: %w", in.spec.Name, err)
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.spec.Optional && backends.Empty(err) {
		in.absent = err
		d.log.Warn("optional input not found", "error", err)
		return nil
	}
	in.err = err
	d.log.Error("input failed", "error", err)
	return err
}

func (d *Daemon) fill(ctx context.Context, in *input) error {
	var stores []*backends.Store
	for _, from := range in.spec.From() {
		store, err := d.open(ctx, from.Source, from.Credentials)
		if err != nil {
			return err
		}
		stores = append(stores, store)
		in.mu.Lock()
		in.stores = stores
		in.mu.Unlock()
	}
	if in.spec.Mode == plan.ModePrefetch {
		return d.prefetch(ctx, in, stores[0])
	}
	if d.cfg.Stage {
		return look(ctx, in, stores)
	}
	return d.runWindow(ctx, in, stores)
}

// open opens a URL of the plan with its credentials. If the Secret is not mounted, the credentials
// come from the environment, as on a workstation.
func (d *Daemon) open(ctx context.Context, url string, c plan.Credentials) (*backends.Store, error) {
	opts := d.cfg.Options
	opts.Log, opts.Secrets = d.log, ""
	if c.Secret != "" {
		directory := filepath.Join(d.cfg.Options.Secrets, c.Secret)
		if _, err := os.Stat(directory); err == nil {
			opts.Secrets = directory
		} else {
			d.log.Info("secret not mounted, using credentials of the environment", "secret", c.Secret, "looked_in", directory)
		}
	}
	return d.cfg.Registry.Open(ctx, url, opts)
}

func (d *Daemon) prefetch(ctx context.Context, in *input, store *backends.Store) error {
	spec, l := in.spec, listing(in.spec)
	l.Shard = d.cfg.Shard
	prefetch := download.Prefetch
	if spec.Layout == plan.LayoutHFCache {
		prefetch = hubcache.Prefetch
	}
	if spec.Whole() {
		l.Shard = plan.Shard{}
	}
	d.log.Info("fetching input", "input", spec.Name, "from", store.Name(), "into", spec.Path)
	reported, stop := context.WithCancel(ctx)
	defer stop()
	go in.logProgress(reported, d.log)
	var single *backends.Object // set if the source names a single object
	directory, obj, err := store.Self(ctx)
	switch {
	case err == nil:
		store, single = directory, &obj
	case backends.KindOf(err) != backends.NotExist:
		return err
	}
	summary, err := prefetch(ctx, download.Config{
		Store: store, Object: single, Dir: spec.Path, Listing: l, Verify: download.Verify(spec.Verify), Write: disk.Write(spec.Write), Log: d.log,
		Unpack: spec.Unpack == plan.UnpackAuto,
		Progress: func(p download.Progress) {
			in.mu.Lock()
			in.progress = &p
			in.mu.Unlock()
		},
	})
	if err != nil {
		return err
	}
	in.mu.Lock()
	in.fetched = true
	in.mu.Unlock()
	d.log.Info("input complete", "input", spec.Name, "files", summary.Files, "bytes", backends.Size(summary.Bytes))
	return nil
}

// look checks whether a window's sources exist, so that an init container can end the job by its
// exit code. A sidecar that fails would only be restarted.
func look(ctx context.Context, in *input, stores []*backends.Store) error {
	for _, store := range stores {
		for _, err := range listing(in.spec).Objects(ctx, store) {
			if err != nil {
				return err
			}
			break // one object is enough
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.fetched = true
	return nil
}

// listing returns which objects of its source an input uses. A window lists the objects of all
// nodes, since its partition is cut from the order.
func listing(spec plan.Input) plan.Listing {
	return plan.Listing{
		Filter:   plan.Filter{Include: spec.Include, Exclude: spec.Exclude},
		MaxBytes: int64(spec.MaxBytes), Unpack: spec.Unpack == plan.UnpackAuto,
	}
}

// window returns an input's window for the API.
func (d *Daemon) window(name string) (*window.Window, error) {
	for _, in := range d.inputs {
		if in.spec.Name != name {
			continue
		}
		in.mu.Lock()
		defer in.mu.Unlock()
		switch {
		case in.spec.Mode == plan.ModePrefetch:
			return nil, fmt.Errorf("its mode is prefetch: all its files are in %s, it has no leases", in.spec.Path)
		case in.absent != nil:
			return nil, api.ErrAbsent
		case in.err != nil:
			return nil, in.err
		case in.window == nil:
			return nil, api.ErrNotYet
		}
		return in.window, nil
	}
	return nil, unknown("inputs", d.cfg.Plan.Spec.Inputs, func(in plan.Input) string { return in.Name })
}

// windows returns the open windows and reports whether more will follow.
func (d *Daemon) windows() (open []*window.Window, more bool) {
	for _, in := range d.inputs {
		in.mu.Lock()
		switch {
		case in.window != nil:
			open = append(open, in.window)
		case in.spec.Mode == plan.ModeWindow && in.err == nil && in.absent == nil:
			more = true
		}
		in.mu.Unlock()
	}
	return open, more
}

// reportUnread warns of windows that do not hold all shards, and from which a command that succeeded
// took none: it may have read the files that it found in ready/, and have missed all others.
func (d *Daemon) reportUnread() {
	open, _ := d.windows()
	for _, w := range open {
		s := w.Status()
		acknowledges := s.Release == window.ReleaseLease || s.Release == window.ReleaseUnlink
		if !acknowledges || s.Delivered+s.Acknowledged > 0 || s.Epoch > 0 || !s.Beginning && s.Items[window.Ready]+s.Finished >= s.Positions {
			continue
		}
		d.log.Warn("command acknowledged no shard, a reader that lists ready/ once misses the shards that come later",
			"input", s.Input, "shards", s.Positions, "in_window", s.Items[window.Ready],
			"hint", "read by stager.torch, stager.shards or stager next")
	}
}

// environment returns the variables that give the child its paths.
func (d *Daemon) environment() []string {
	env := []string{"STAGER_SOCKET=" + d.cfg.Socket, "STAGER_PREEMPT=" + d.preempt()}
	for _, in := range d.inputs {
		env = append(env, plan.Variable("INPUT", in.spec.Name)+"="+in.spec.Path)
	}
	for _, out := range d.outputs {
		env = append(env, plan.Variable("OUTPUT", out.spec.Name)+"="+out.spec.Path)
	}
	return env
}

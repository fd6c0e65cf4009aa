package transfer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/dustin/go-humanize/english"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/layout"
	"github.com/stager-dev/stager/stager/plan"
)

// DefaultBuffers is the default of Config.Buffers: two parts of an object store.
const DefaultBuffers = 32 << 20

// corruptTries is how often an object with a wrong checksum is copied.
const corruptTries = 3

// Config configures a copy.
type Config struct {
	Src, Dst *backends.Store
	// Object, if not nil, is the only object to copy, as returned by Src.Self with its Store.
	// Listing is then ignored.
	Object    *backends.Object
	Listing   plan.Listing
	Shared    *Shared // nil: the default agreement for a partition of Listing
	Overwrite bool    // replace different objects at the destination
	Force     bool    // copy all, also what is present; implies Overwrite
	DryRun    bool    // compare, and copy nothing
	Buffers   int64   // memory for objects in bytes, at least 16 MiB; 0: DefaultBuffers
	Log       *slog.Logger
	// Progress is called from several goroutines, one call at a time. May be nil.
	Progress func(Progress)
}

// Progress is the progress of a copy.
type Progress struct {
	Listing           bool // the totals still grow
	Files, FilesTotal int
	Bytes, BytesTotal int64
}

// Summary is the result of a copy.
type Summary struct {
	Source      string         `json:"source"`
	Destination string         `json:"destination"`
	Files       int            `json:"files"` // present on both sides now
	Bytes       int64          `json:"bytes"`
	ThereFiles  int            `json:"thereFiles"` // present before
	ThereBytes  int64          `json:"thereBytes"`
	CopiedFiles int            `json:"copiedFiles"` // with DryRun: that would be copied
	CopiedBytes int64          `json:"copiedBytes"`
	Empty       int            `json:"empty,omitempty"` // source entries without contents: FIFOs, empty directories and the like
	Verified    map[string]int `json:"verified"`        // copied files by the checksums that matched, on either side, or "size"
	Seconds     float64        `json:"seconds"`
}

// Copy copies every object that cfg selects to the destination, under the same key, and returns
// when all are present and verified. It deletes nothing. The first error ends the copy; complete
// objects stay and are skipped by the next run. A worker that copies one of several partitions
// first agrees with the other workers on the work, see [Shared].
//
// A different object at the destination is an error of kind Exist, unless cfg allows to replace it.
// If the sizes differ, the error is returned before the first byte is copied. An object that
// changes after it was listed is an error of kind Changed: the next run lists again.
func Copy(ctx context.Context, cfg Config) (Summary, error) {
	start := time.Now()
	r, err := newRun(ctx, cfg)
	if err == nil {
		err = r.copyAll(ctx)
	}
	r.summary.Seconds = time.Since(start).Seconds()
	return r.summary, err
}

// run is one copy under way.
type run struct {
	Config
	record *record
	listed layout.Digest // digest of the current walk, if work is shared

	verifying bool
	room      *semaphore.Weighted // limits Buffers

	mu       sync.Mutex // guards all below
	progress Progress
	summary  Summary
}

func newRun(ctx context.Context, cfg Config) (*run, error) {
	if cfg.Buffers <= 0 {
		cfg.Buffers = DefaultBuffers
	}
	cfg.Buffers = max(cfg.Buffers, maxBlock)
	cfg.Overwrite = cfg.Overwrite || cfg.Force
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	r := &run{
		Config: cfg, room: semaphore.NewWeighted(cfg.Buffers),
		summary: Summary{Source: cfg.Src.Name(), Destination: cfg.Dst.Name(), Verified: make(map[string]int)},
	}
	var err error
	r.record, err = openRecord(ctx, &cfg)
	return r, err
}

func (r *run) copyAll(ctx context.Context) (err error) {
	if err := r.list(ctx); err != nil || r.DryRun {
		return err
	}
	worker, err := r.join(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if lost := r.record.close(ctx); lost != nil {
			r.Log.Warn("cannot record the copied objects, the next run reads them again", "error", lost)
		}
	}()
	if err := r.each(ctx, r.upload); err != nil {
		return err
	}
	return r.finish(ctx, worker)
}

// each compares every object again and passes it to several workers.
func (r *run) each(ctx context.Context, work func(context.Context, pair) error) error {
	pool, gctx := backends.NewWorkerPool(ctx, func() int { return max(r.Src.Connections(), r.Dst.Connections()) })
	for p, err := range r.pairs(gctx) {
		if gctx.Err() != nil {
			break
		}
		pool.Go(func() error {
			if err != nil {
				return err
			}
			return work(gctx, p)
		})
	}
	if err := pool.Wait(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return &backends.Error{Op: "copy", Store: r.summary.Source, Kind: backends.Canceled, Err: context.Cause(ctx)}
	}
	return nil
}

// list counts what there is to do, and refuses differences.
func (r *run) list(ctx context.Context) error {
	var differ []string
	differing := 0
	logged := plan.LogSkipped(r.Log)
	r.Listing.Skipped = func(key, what string) {
		r.summary.Empty++
		logged(key, what)
	}
	defer func() { r.Listing.Skipped = nil }() // report them once only
	for p, err := range r.pairs(ctx) {
		if err != nil {
			return err
		}
		r.report(func(now *Progress) {
			now.Listing = true
			now.FilesTotal++
			now.BytesTotal += p.src.Size
		})
		if p.state == differs && !r.Overwrite {
			if differing++; len(differ) < 5 {
				differ = append(differ, fmt.Sprintf("%q", p.src.Key))
			}
		}
		if r.DryRun {
			r.count(p.src, p.state == there || p.state == unsure, "")
		}
	}
	if differing > 0 {
		return &backends.Error{Op: "copy", Store: r.summary.Destination, Kind: backends.Exist, Err: fmt.Errorf(
			"%s at the destination %s from the source, such as %s; nothing was copied: move away what differs, or replace it with --overwrite",
			english.Plural(differing, "object", ""), english.PluralWord(differing, "differs", "differ"), strings.Join(differ, ", "))}
	}
	return nil
}

// report changes the progress and calls Progress.
func (r *run) report(change func(*Progress)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.progress)
	if r.Progress != nil {
		r.Progress(r.progress)
	}
}

func (r *run) moved(n int64) {
	r.report(func(now *Progress) { now.Bytes += n; now.Listing = false })
}

// count counts an object that is present on both sides.
func (r *run) count(obj backends.Object, was bool, how string) {
	r.report(func(now *Progress) { now.Files++ })
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.summary
	s.Files, s.Bytes = s.Files+1, s.Bytes+obj.Size
	if was {
		s.ThereFiles, s.ThereBytes = s.ThereFiles+1, s.ThereBytes+obj.Size
	} else {
		s.CopiedFiles, s.CopiedBytes = s.CopiedFiles+1, s.CopiedBytes+obj.Size
	}
	if how != "" {
		s.Verified[how]++
	}
}

// upload copies one object unless it is present.
func (r *run) upload(ctx context.Context, p pair) error {
	equal := p.state == there
	if p.state == unsure {
		var err error
		if equal, err = r.same(ctx, p.src, p.dst); err != nil {
			return r.explain(err)
		}
		if equal {
			r.note(ctx, p.src, p.dst)
		}
	}
	switch {
	case equal:
		r.moved(p.src.Size)
		r.count(p.src, true, "")
		return nil
	case p.state != absent && !r.Overwrite:
		return r.inTheWay(p.src.Key)
	}
	return r.explain(r.send(ctx, p.src, p.state == absent && !r.Force))
}

func (r *run) inTheWay(key string) error {
	return &backends.Error{Op: "copy", Store: r.summary.Destination, Key: key, Kind: backends.Exist, Err: errors.New(
		"it exists and differs from the source: move it away, or replace it with --overwrite")}
}

// note adds to the record. If that fails, the next run has to read more.
func (r *run) note(ctx context.Context, from, to backends.Object) {
	if err := r.record.add(ctx, from, to); err != nil {
		r.Log.Warn("cannot record a copied object, retrying later", "error", err)
	}
}

// explain adds what to do about an object that is no longer the listed one.
func (r *run) explain(err error) error {
	var local *backends.LocalError
	var e *backends.Error
	if errors.As(err, &local) && errors.As(local.Err, &e) {
		err = e // a read error in Put is a failure of the source
	}
	if !errors.As(err, &e) || e.Store != r.summary.Source {
		return err
	}
	out := *e
	switch e.Kind {
	case backends.Changed:
		out.Err = fmt.Errorf("%w; run the command again to copy the current objects", e.Err)
	case backends.NotExist:
		out.Kind = backends.Changed
		out.Err = fmt.Errorf("it was removed after it was listed (%w); run the command again", e.Err)
	default:
		return err
	}
	return &out
}

package check

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
)

// Config configures a check.
type Config struct {
	Store    *backends.Store // the directory of the URL
	ReadOnly bool            // write nothing; read existing objects
	// SpeedOnly only measures speed. The only promise tested is that bytes are correct at full
	// speed.
	SpeedOnly bool
	// Size is the size of the file, in bytes, for measuring the speed of a single stream. 0: a size
	// that keeps all measurements within about 15 s.
	Size int64
	// Progress, if not nil, is called with the current step, from one goroutine at a time.
	Progress func(now string)
}

// Scratch is the prefix of the names of scratch directories.
const Scratch = ".stager-check-"

// sweepFor limits the time for removing the scratch directory.
const sweepFor = time.Minute

// retryFor is how long a request may fail while a promise is tested. A server that always responds
// with 500 to such a request breaks the promise; finding out must not take minutes for each
// promise.
const retryFor = 15 * time.Second

// inFlight is how long the store may still process earlier requests after an interrupt: a cancelled
// request is not undone.
const inFlight = time.Second

// Run checks a store. An error means that there is no report: the store cannot be reached or does
// not exist, or the context ended. Run removes what it wrote; if it cannot, the error names what is
// left.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	switch _, _, err := cfg.Store.Self(ctx); {
	case err == nil:
		return nil, &backends.Error{
			Op: "check", Store: cfg.Store.Name(), Kind: backends.Invalid,
			Err: errors.New("this is one object; use its directory"),
		}
	case backends.KindOf(err) != backends.NotExist:
		return nil, err
	}
	r := &run{
		Config: cfg, ctx: ctx, rel: Scratch + strings.ToLower(rand.Text()[:10]) + "/",
		report:      &Report{Store: cfg.Store.Name(), Began: time.Now(), ReadOnly: cfg.ReadOnly},
		connections: cfg.Store.Connections(),
	}
	r.scratch = cfg.Store.Sub(r.rel).Impatient(retryFor)
	err := r.all()
	if r.wrote {
		r.step("removing the scratch directory")
		left := r.sweep()
		if ctx.Err() != nil && left == nil {
			time.Sleep(inFlight)
			left = r.sweep()
		}
		if left != nil {
			r.report.Left = left.Error()
			err = errors.Join(err, left)
		}
	}
	r.report.Seconds = time.Since(r.report.Began).Seconds()
	switch {
	case ctx.Err() != nil:
		return nil, &InterruptedError{Left: r.report.Left}
	case err != nil && len(r.report.Promises) == 0:
		return nil, err
	}
	return r.report, nil
}

// InterruptedError reports that the check was cancelled, and what it left in the store.
type InterruptedError struct{ Left string }

func (e *InterruptedError) Error() string {
	if e.Left != "" {
		return "interrupted; " + e.Left
	}
	return "interrupted; nothing is left in the store"
}

// run is one check under way.
type run struct {
	Config
	ctx     context.Context // of the whole check
	scratch *backends.Store
	rel     string // path of the scratch directory relative to Store, with its "/"
	report  *Report
	wrote   bool          // scratch may contain objects
	stopped string        // why the remaining promises are not tested; "": they are
	lost    time.Duration // by tests in which requests failed
	// connections is the store's initial number of concurrent requests. The store may increase it
	// during the check.
	connections int
}

// step reports the current step.
func (r *run) step(now string) {
	if r.Progress != nil {
		r.Progress(now)
	}
}

// all runs every step except removing what was written.
func (r *run) all() error {
	r.step("listing existing objects")
	there, err := r.list()
	if err != nil {
		return err
	}
	if !r.ReadOnly {
		r.step("writing a first object")
		if err := r.firstWrite(); err != nil {
			return err
		}
	}
	open := func(*checker) *backends.Store { return r.Store }
	switch {
	case r.SpeedOnly && (!r.report.ReadOnly || len(there) > 0):
	case !r.report.ReadOnly:
		open = func(*checker) *backends.Store { return r.scratch }
		conformance.Run(&checker{run: r}, open, conformance.Options{Refused: func(key string) {
			r.report.Capabilities.RefusedNames = append(r.report.Capabilities.RefusedNames, key)
		}})
	case len(there) == 0:
		return &backends.Error{Op: "check", Store: r.Store.Name(), Kind: backends.NotExist, Err: r.nothing()}
	default:
		conformance.Inspect(&checker{run: r}, open, sample(there))
	}
	if !r.SpeedOnly {
		r.capabilities(there)
	}
	measured := fullSpeed
	if r.report.ReadOnly {
		measured = fullSpeedRead
	}
	(&checker{run: r}).Run(measured, func(t *checker) {
		if err := r.measure(t.Context(), there); err != nil {
			t.Fatalf("%v", err)
		}
	})
	return r.ctx.Err()
}

func (r *run) nothing() error {
	if r.report.Refused != "" {
		return fmt.Errorf("%s, and no object here can be read instead", r.report.Refused)
	}
	return ErrEmpty
}

// ErrEmpty is wrapped by the error of a check that may only read, and found nothing to read.
var ErrEmpty = errors.New("there is no object here; --read-only needs existing objects")

// Limits of the listing.
const (
	listed  = 2000
	listFor = 5 * time.Second
)

// list lists the existing objects, up to the limits.
func (r *run) list() (there []backends.Object, err error) {
	began := time.Now()
	for obj, err := range r.Store.List(r.ctx, "") {
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(obj.Key, Scratch) {
			continue // left by another check
		}
		there = append(there, obj)
		if len(there) == listed || time.Since(began) > listFor {
			break
		}
	}
	return there, nil
}

// sample returns a few of the objects: the smallest, the largest and some between.
func sample(there []backends.Object) []backends.Object {
	const most = 8
	by := slices.SortedFunc(slices.Values(there), func(a, b backends.Object) int { return int(min(max(a.Size-b.Size, -1), 1)) })
	if len(by) <= most {
		return by
	}
	var some []backends.Object
	for i := range most {
		some = append(some, by[i*(len(by)-1)/(most-1)])
	}
	return some
}

// firstWrite determines whether the store can be written to, and reads its clock.
func (r *run) firstWrite() error {
	r.wrote = true
	before := time.Now()
	_, err := r.scratch.PutBytes(r.ctx, "first", []byte("stager check\n"), backends.CreateOptions{})
	after := time.Now()
	switch kind := backends.KindOf(err); {
	case kind == backends.Permission:
		r.wrote = false
		r.refused("writing", err)
		return nil
	case err != nil:
		return err
	}
	if obj, err := r.scratch.Stat(r.ctx, "first"); err == nil {
		r.report.Capabilities.ClockAheadSeconds = skew(obj.ModTime, before, after)
	}
	if err := r.scratch.Delete(r.ctx, "first"); backends.KindOf(err) == backends.Permission {
		r.refused("deleting", err)
	} else if err != nil {
		return err
	}
	return nil
}

// refused continues without writing.
func (r *run) refused(what string, err error) {
	var e *backends.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	r.report.ReadOnly, r.report.Refused = true, fmt.Sprintf("%s is refused: %v", what, err)
}

// skew returns by how many seconds the clock of the store is ahead, or nil if the store reports no
// time.
func skew(reported, before, after time.Time) *float64 {
	if reported.IsZero() {
		return nil
	}
	ahead := 0.0
	if early := before.Sub(reported.Add(time.Second)); early > 0 { // many stores report whole seconds
		ahead = -early.Seconds()
	} else if late := reported.Sub(after); late > 0 {
		ahead = late.Seconds()
	}
	return &ahead
}

// sweep removes the scratch directory, even if the context has ended.
func (r *run) sweep() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), sweepFor)
	defer cancel()
	var keys []string
	var err error
	for obj, e := range r.scratch.List(ctx, "") {
		if err = e; err == nil {
			keys = append(keys, obj.Key)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.Store.Connections())
	for _, key := range keys {
		g.Go(func() error { return r.scratch.Delete(ctx, key) })
	}
	if err = errors.Join(err, g.Wait()); err != nil {
		return fmt.Errorf("cannot remove the scratch directory %s (remove it manually): %w", r.scratch.Name(), err)
	}
	return nil
}

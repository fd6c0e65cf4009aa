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

// Config says what to check.
type Config struct {
	Store    *backends.Store // the directory that the URL names
	ReadOnly bool            // write nothing; read what is there
	// SpeedOnly measures, and tries no promise but that bytes are right at full speed.
	SpeedOnly bool
	// Size of the file, in bytes, by which the speed of one stream is measured; 0: what
	// keeps all measuring within 15 s or so.
	Size int64
	// Progress, when not nil, is told what is looked at now. It is called from one
	// goroutine at a time.
	Progress func(now string)
}

// Scratch is what the names of scratch directories begin with.
const Scratch = ".stager-check-"

// sweepFor is how long removing the scratch directory may take.
const sweepFor = time.Minute

// retryFor is how long a request of a promise may fail. A server that answers one of them
// 500 for ever breaks that promise; to find out must not take minutes for each.
const retryFor = 15 * time.Second

// inFlight is how long after an interrupt a store may still do what it was asked before:
// a request that was broken off is not taken back.
const inFlight = time.Second

// Run checks a store. An error says that there is no report: the store cannot be
// reached, is missing, or the context ended. What was written is removed, or the error
// says where it lies.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	switch _, _, err := cfg.Store.Self(ctx); {
	case err == nil:
		return nil, &backends.Error{
			Op: "check", Store: cfg.Store.Name(), Kind: backends.Invalid,
			Err: errors.New("this is one object; give the directory that it lies in"),
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

// InterruptedError says that the check was cancelled, and what that left in the store.
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
	ctx     context.Context // of the whole
	scratch *backends.Store
	rel     string // the scratch directory, relative to Store, with its "/"
	report  *Report
	wrote   bool  // something may lie in scratch
	gone    error // the store could not be reached any more
	// connections are how many requests at once the store began with: while it is checked
	// it may try more.
	connections int
}

// step tells what is done now.
func (r *run) step(now string) {
	if r.Progress != nil {
		r.Progress(now)
	}
}

// all does it, but for removing what it wrote.
func (r *run) all() error {
	r.step("looking at what is there")
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
		return fmt.Errorf("%s, and there is no object here that could be read instead", r.report.Refused)
	}
	return errors.New("there is no object here; --read-only needs some to read")
}

// Limits of the survey.
const (
	listed  = 2000
	listFor = 5 * time.Second
)

// list lists what is there, up to its limits.
func (r *run) list() (there []backends.Object, err error) {
	began := time.Now()
	for obj, err := range r.Store.List(r.ctx, "") {
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(obj.Key, Scratch) {
			continue // of another check
		}
		there = append(there, obj)
		if len(there) == listed || time.Since(began) > listFor {
			break
		}
	}
	return there, nil
}

// sample is a few of the objects: the smallest, the largest and some between.
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

// firstWrite finds out whether this store can be written to, and its clock.
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

// refused goes on without writing.
func (r *run) refused(what string, err error) {
	var e *backends.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	r.report.ReadOnly, r.report.Refused = true, fmt.Sprintf("%s is refused: %v", what, err)
}

// skew is by how many seconds the clock of the store is ahead, if it tells.
func skew(told, before, after time.Time) *float64 {
	if told.IsZero() {
		return nil
	}
	ahead := 0.0
	if early := before.Sub(told.Add(time.Second)); early > 0 { // many tell whole seconds
		ahead = -early.Seconds()
	} else if late := told.Sub(after); late > 0 {
		ahead = late.Seconds()
	}
	return &ahead
}

// sweep removes the scratch directory, whatever became of the context.
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
		return fmt.Errorf("the scratch directory %s could not be removed, remove it by hand: %w", r.scratch.Name(), err)
	}
	return nil
}

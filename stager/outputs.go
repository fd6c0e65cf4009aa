package stager

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/api"
	"github.com/stager-dev/stager/stager/checkpoint"
	"github.com/stager-dev/stager/stager/plan"
)

// output is the runtime state of one output of the plan.
type output struct {
	spec plan.Output

	mu       sync.Mutex // guards all below
	store    *backends.Store
	uploader *checkpoint.Uploader
	open     bool // the uploader exists and, with several nodes, is registered
}

func (o *output) close() (err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.uploader != nil {
		err = errors.Join(o.uploader.Close(), o.store.Close())
	}
	return err
}

func (o *output) get() *checkpoint.Uploader {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.uploader
}

func (o *output) isOpen() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open
}

// openOutputs opens every destination. A trainer must not start if its results cannot be stored.
func (d *Daemon) openOutputs(ctx context.Context) error {
	for _, out := range d.outputs {
		spec := out.spec
		store, err := d.open(ctx, spec.Destination, spec.Credentials)
		if err != nil {
			return fmt.Errorf("output %s: %w", spec.Name, err)
		}
		node, nodes := d.cfg.Node.Index, 0
		if spec.Nodes == plan.NodesAll {
			if nodes = d.cfg.Node.Count; nodes == 0 {
				return errors.Join(&plan.EnvError{Err: fmt.Errorf(
					"output %s joins the parts of all nodes, but the index of this node and the number of nodes are unknown: set STAGER_INDEX and STAGER_COUNT", spec.Name)}, store.Close())
			}
		} else {
			node = 0
		}
		job := d.cfg.Job
		if job == "" && nodes > 1 {
			job = d.cfg.Plan.Metadata.Name + " " + spec.Destination
			d.log.Warn("cannot distinguish runs of this job: set STAGER_JOB_UID to the same value on all nodes, different for each job",
				"output", spec.Name, "job", job)
		}
		u, err := checkpoint.New(checkpoint.Config{
			Output: spec.Name, Dir: spec.Path, Store: store, Mode: checkpoint.Mode(spec.Commit),
			When: when(spec), QuietPeriod: time.Duration(spec.QuietPeriod), Grace: time.Duration(spec.Deadline), Node: node, Nodes: nodes,
			Numbers: checkpoint.Numbering(spec.Step), Hold: hold(spec),
			Keep: checkpoint.Keep{
				Last: spec.Keep.Last, Every: spec.Keep.Every, Best: spec.Keep.Best, Metric: spec.Keep.Metric, Highest: spec.Keep.Mode == plan.BestHighest,
			},
			Conflict: spec.Conflict, Attempt: d.cfg.Attempt, Job: job, Pod: d.cfg.Pod, Stager: d.cfg.Version,
			Cursors: d.cursors, Inputs: d.positioned, Lasting: d.lasting, Reached: d.reached, Log: d.log, Metrics: d.checkpointMetrics,
		})
		if err != nil {
			return fmt.Errorf("output %s: %w", spec.Name, errors.Join(err, store.Close()))
		}
		out.mu.Lock()
		out.store, out.uploader = store, u
		out.mu.Unlock()
		if err := u.Register(ctx); err != nil {
			return fmt.Errorf("output %s: %w", spec.Name, err)
		}
		out.mu.Lock()
		out.open = true
		out.mu.Unlock()
	}
	return nil
}

// drainOutputs saves all outputs, each within its deadline, and returns the errors of required
// ones.
func (d *Daemon) drainOutputs(ctx context.Context, exit checkpoint.Exit) error {
	errs := make([]error, len(d.outputs))
	var wg sync.WaitGroup
	for i, out := range d.outputs {
		wg.Go(func() {
			ctx, cancel := d.within(ctx, time.Duration(out.spec.Deadline))
			defer cancel()
			err := out.uploader.Drain(ctx, exit)
			switch {
			case err == nil, errors.Is(context.Cause(ctx), context.Canceled): // saved, or cancelled by the caller
			case out.spec.Required:
				errs[i] = fmt.Errorf("output %s: %w", out.spec.Name, err)
			default:
				d.log.Warn("optional output not saved", "output", out.spec.Name, "error", err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Save saves all outputs, each within its deadline, after a trainer in another container exited
// with the given code. It returns api.ErrNotYet before the destinations are open, and otherwise the
// errors of required outputs. Inputs are still fed, and Save may be called again: a trainer that
// failed may be restarted in place.
func (d *Daemon) Save(ctx context.Context, code int) error {
	for _, out := range d.outputs {
		if out.get() == nil {
			return fmt.Errorf("output %s: %w", out.spec.Name, api.ErrNotYet)
		}
	}
	d.mu.Lock()
	d.success = code == 0
	d.mu.Unlock()
	d.log.Info("command exited, saving outputs", "code", code)
	if code == 0 {
		d.reportUnread()
	}
	err := d.drainOutputs(ctx, checkpoint.Exit{Success: code == 0})
	if err == nil && ctx.Err() != nil { // the caller no longer waits
		return context.Cause(ctx)
	}
	return err
}

// Restored records that the trainer of a job begins again, from the checkpoint of an agreement in
// a source, in the outputs that save there. It returns api.ErrNotYet before the destinations are
// open.
func (d *Daemon) Restored(source, job string, agreement int) error {
	var errs []error
	for _, out := range d.outputs {
		u := out.get()
		if u == nil {
			return fmt.Errorf("output %s: %w", out.spec.Name, api.ErrNotYet)
		}
		if err := u.Restored(source, job, agreement); err != nil {
			errs = append(errs, fmt.Errorf("output %s: %w", out.spec.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (d *Daemon) succeeded() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.success
}

// within limits ctx to the time for saving an output: the drain's deadline if one is set and not
// over, else the planned one.
func (d *Daemon) within(ctx context.Context, planned time.Duration) (context.Context, context.CancelFunc) {
	d.mu.Lock()
	limit := time.Until(d.until)
	d.mu.Unlock()
	if limit <= 0 {
		limit = planned
	}
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("the deadline of %s has passed", limit.Round(time.Second)))
}

// uploader returns an output's uploader for the API.
func (d *Daemon) uploader(name string) (*checkpoint.Uploader, error) {
	for _, out := range d.outputs {
		if out.spec.Name != name {
			continue
		}
		if u := out.get(); u != nil {
			return u, nil
		}
		return nil, api.ErrNotYet
	}
	return nil, unknown("outputs", d.cfg.Plan.Spec.Outputs, func(out plan.Output) string { return out.Name })
}

// when converts the plan's list of upload times to a set.
func when(spec plan.Output) (w checkpoint.When) {
	for _, at := range spec.When {
		switch at {
		case plan.WhenChange:
			w.Change = true
		case plan.WhenInterval:
			w.Interval = time.Duration(spec.Interval)
		case plan.WhenExit:
			w.Exit = true
		case plan.WhenSuccess:
			w.Success = true
		case plan.WhenFailure:
			w.Failure = true
		}
	}
	return w
}

// unknown returns api.ErrUnknown with the known names.
func unknown[T any](what string, specs []T, name func(T) string) error {
	names := make([]string, len(specs))
	for i, spec := range specs {
		names[i] = name(spec)
	}
	if len(names) == 0 {
		names = []string{"none"}
	}
	return fmt.Errorf("%w; its %s are %s", api.ErrUnknown, what, strings.Join(names, ", "))
}

// hold returns the limits for retaining incomplete checkpoints.
func hold(spec plan.Output) *checkpoint.Hold {
	h := plan.DefaultHold
	if spec.Hold != nil {
		h = *spec.Hold
	}
	return &checkpoint.Hold{Checkpoints: h.Checkpoints, Percent: h.Percent}
}

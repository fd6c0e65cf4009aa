package stager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/api"
	"github.com/stager-dev/stager/stager/checkpoint"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window"
)

// Config configures a Daemon.
type Config struct {
	Plan     *plan.StagePlan // parsed, with its placeholders expanded
	Shard    plan.Shard      // this node's partition of the inputs
	Node     plan.Shard      // index of this node; zero if unknown
	Registry *backends.Registry
	// Options apply to every store. Secrets is a directory with one subdirectory for each Secret
	// that the plan names.
	Options    backends.Options
	Attempt    int    // how often this job was started before
	Job        string // identity of the job; empty: derived from the plan
	Pod        string // this run of the pod
	Version    string // of stager, for the records
	Socket     string // path of the API's socket
	AnyUser    bool   // open the socket to every user who can reach it, not only to its owner and group
	Listen     string // address of a TCP port for the API; empty: none
	Token      string // required for requests on the port that change something
	Child      *Child // nil: a sidecar
	Preemption string // file or URL of the preemption notice; empty: none
	Stage      bool   // without a child: return when every input is ready; windows stay closed, only their sources are checked
	Metrics    *prometheus.Registry
	Log        *slog.Logger
}

// Daemon runs one plan.
type Daemon struct {
	cfg     Config
	log     *slog.Logger
	started time.Time
	inputs  []*input
	outputs []*output

	windowMetrics     *window.Metrics
	checkpointMetrics *checkpoint.Metrics
	apiMetrics        *api.Metrics

	beginAfter, listPatience time.Duration // copies of constants, for tests
	beginLeast               int           // as above

	mu      sync.Mutex // guards all below
	phase   api.Phase
	until   time.Time     // deadline for saving, set by a drain request; zero: use the plan's
	success bool          // a trainer in another container exited with code 0, as reported to Save
	drain   chan struct{} // closed when the drain begins
	changed chan struct{} // closed and replaced when an input's state changes
}

// UnsavedError reports that required outputs are not safe.
type UnsavedError struct{ Err error }

func (e *UnsavedError) Error() string {
	return fmt.Sprintf("outputs are not saved: %v", e.Err)
}

// Unwrap returns the cause.
func (e *UnsavedError) Unwrap() error { return e.Err }

// New returns a daemon. It contacts nothing.
func New(cfg Config) *Daemon {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	RegisterProcessMetrics(cfg.Metrics)
	cfg.Options.Metrics = backends.NewMetrics(cfg.Metrics)
	d := &Daemon{
		cfg: cfg, log: cfg.Log, started: time.Now(), phase: api.Starting,
		drain: make(chan struct{}), changed: make(chan struct{}),
		windowMetrics:     window.NewMetrics(cfg.Metrics),
		checkpointMetrics: checkpoint.NewMetrics(cfg.Metrics),
		apiMetrics:        api.NewMetrics(cfg.Metrics),
		beginAfter:        beginAfter, listPatience: listPatience, beginLeast: beginLeast,
	}
	if cfg.Child != nil {
		cfg.Child.signals = make(chan os.Signal, 16)
	}
	d.cfg.Options.Yield = d.uploadThrottle().wait
	for _, spec := range cfg.Plan.Spec.Inputs {
		d.inputs = append(d.inputs, newInput(spec))
	}
	for _, spec := range cfg.Plan.Spec.Outputs {
		d.outputs = append(d.outputs, &output{spec: spec})
	}
	return d
}

// Run runs the plan. Cancelling ctx is not a failure: it starts the drain, in which outputs are
// saved. Run returns a *ChildError if the child exited with a code other than 0, or a *StartError
// or *NotStartedError if it never started. Otherwise it returns an *UnsavedError if required
// outputs are not safe, or the error of a failed input.
func (d *Daemon) Run(ctx context.Context) error {
	socket, err := listen(d.cfg.Socket)
	if err != nil {
		return err
	}
	if d.cfg.AnyUser {
		if err := letIn(d.cfg.Socket); err != nil {
			return errors.Join(err, socket.Close())
		}
	}
	apiServer, err := d.serve(socket)
	if err != nil {
		return errors.Join(err, socket.Close())
	}
	// Cancelling ctx must not stop what has to work until the very end.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	stopDrain := context.AfterFunc(ctx, func() { d.Drain(0) })
	defer stopDrain()
	removePreempt(filepath.Dir(d.cfg.Socket)) // left by an earlier process, if any
	if d.cfg.Preemption != "" {
		go d.onPreemption(work)
	}

	err = d.live(ctx, work)
	d.setPhase(api.Ended)
	removePreempt(filepath.Dir(d.cfg.Socket)) // no trainer is left to read it
	stop()
	if cerr := apiServer.close(); err == nil {
		err = cerr
	}
	for _, in := range d.inputs {
		err = errors.Join(err, in.close())
	}
	for _, out := range d.outputs {
		err = errors.Join(err, out.close())
	}
	return err
}

// live runs steps 2 to 4 of the package comment.
func (d *Daemon) live(ctx, work context.Context) error {
	if err := d.openOutputs(work); err != nil {
		return err
	}
	feed, stopFeeding := context.WithCancel(work)
	defer stopFeeding()
	inputs, saving := new(errgroup.Group), new(errgroup.Group)
	for _, in := range d.inputs {
		inputs.Go(func() error { return d.feed(feed, in) })
	}
	saves, stopSaving := context.WithCancel(work)
	defer stopSaving()
	for _, out := range d.outputs {
		saving.Go(func() error { return ended(out.uploader.Run(saves)) })
	}

	if err := d.awaitReady(); err != nil {
		stopFeeding()
		stopSaving()
		_ = inputs.Wait() // err is already the first failure
		return errors.Join(err, saving.Wait())
	}
	t := d.trainer(ctx)
	select {
	case <-t.gone:
		d.Drain(0)
	case <-d.drain:
	}
	d.setPhase(api.Draining)
	stopFeeding()
	inputErr := inputs.Wait()
	saved := d.save(work, t)
	stopSaving()
	if err := saving.Wait(); err != nil {
		d.log.Warn("saving failed", "error", err)
	}
	switch {
	case t.err != nil:
		if saved != nil {
			d.log.Error("outputs are not saved", "error", saved)
		}
		return t.err
	case saved != nil:
		return &UnsavedError{saved}
	}
	return inputErr
}

// trainer is the process that uses the data: the child, or a process in another container. Of the
// latter we only know that it exits before this process.
type trainer struct {
	gone <-chan struct{}
	err  error // of the child; valid once gone is closed
}

// trainer starts the child, if there is one and the drain has not begun.
func (d *Daemon) trainer(ctx context.Context) *trainer {
	gone := make(chan struct{})
	if d.cfg.Child == nil && d.cfg.Stage && !d.draining() {
		close(gone)
		return &trainer{gone: gone}
	}
	if d.cfg.Child == nil && !d.cfg.Stage {
		if !d.draining() {
			d.setPhase(api.Running)
		}
		return &trainer{gone: ctx.Done()}
	}
	t := &trainer{gone: gone}
	if d.draining() {
		t.err = &NotStartedError{}
		close(gone)
		return t
	}
	d.log.Info("all inputs ready, starting the command", "command", d.cfg.Child.Command[0])
	d.setPhase(api.Running)
	go func() {
		defer close(gone)
		t.err = d.cfg.Child.run(d.environment())
		d.log.Info("command exited", "code", codeOf(t.err))
		if t.err == nil {
			d.reportUnread()
		}
	}()
	return t
}

// save saves the outputs and returns the errors of required ones. If the drain begins before the
// trainer exits, it saves what exists, and saves once more after the exit.
func (d *Daemon) save(work context.Context, t *trainer) error {
	early, stop := context.WithCancel(work)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-t.gone: // a single pass is enough
			return
		default:
		}
		if err := d.drainOutputs(early, checkpoint.Exit{}); early.Err() == nil {
			d.setPhase(api.Drained)
			if err != nil {
				d.log.Warn("not all outputs are saved, retrying at the end", "error", err)
			}
		}
	}()
	<-t.gone
	// Only Save may know how a trainer in another container exited, and other processes of it may
	// still run. So a checkpoint there is complete only if completion detectors say so.
	exit := checkpoint.Exit{Success: t.err == nil, Gone: true}
	if d.cfg.Child == nil {
		exit = checkpoint.Exit{Success: d.succeeded()}
	}
	err := d.drainOutputs(work, exit)
	stop()
	<-done
	d.setPhase(api.Drained)
	return err
}

// Drain starts the drain, once. The deadline limits the time for saving; 0 means the plan's
// deadline for each output.
func (d *Daemon) Drain(deadline time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if deadline > 0 {
		d.until = time.Now().Add(deadline)
	}
	select {
	case <-d.drain:
	default:
		d.log.Info("draining: fetching stopped, saving outputs")
		d.signalTrainer()
		close(d.drain)
	}
}

func (d *Daemon) draining() bool {
	select {
	case <-d.drain:
		return true
	default:
		return false
	}
}

// awaitReady returns when every input is ready, when a required input has failed, or when the drain
// begins.
func (d *Daemon) awaitReady() error {
	for {
		d.mu.Lock()
		changed := d.changed
		d.mu.Unlock()
		ready := true
		for _, in := range d.inputs {
			ok, err := in.state()
			if err != nil {
				return err
			}
			ready = ready && ok
		}
		if ready {
			return nil
		}
		select {
		case <-changed:
		case <-d.drain:
			return nil
		}
	}
}

// noteChange wakes goroutines that wait for a change of input state.
func (d *Daemon) noteChange() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *Daemon) setPhase(p api.Phase) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.phase = p
}

// Snapshot returns the whole current state.
func (d *Daemon) Snapshot() api.Snapshot {
	d.mu.Lock()
	s := api.Snapshot{Version: d.cfg.Version, Plan: d.cfg.Plan.Metadata.Name, Phase: d.phase, Started: d.started}
	d.mu.Unlock()
	var waiting []string
	for _, in := range d.inputs {
		one := in.snapshot()
		if !one.Ready {
			waiting = append(waiting, one.Name)
		}
		s.Inputs = append(s.Inputs, one)
	}
	var opening []string
	for _, out := range d.outputs {
		if u := out.get(); u != nil {
			s.Outputs = append(s.Outputs, u.Status())
		}
		if !out.isOpen() {
			opening = append(opening, out.spec.Name)
		}
	}
	s.Ready = len(opening)+len(waiting) == 0 && (s.Phase == api.Starting || s.Phase == api.Running)
	switch {
	case len(opening) > 0:
		s.Waiting = "outputs are being opened: " + strings.Join(opening, ", ")
	case len(waiting) > 0:
		s.Waiting = "inputs are being filled: " + strings.Join(waiting, ", ")
	}
	switch s.Phase {
	case api.Draining:
		s.Waiting = "draining: fetching stopped, saving outputs"
	case api.Drained:
		s.Waiting = "drained: fetching stopped, outputs saved"
	case api.Ended:
		s.Waiting = "ended"
	}
	return s
}

// ended returns nil for errors that only report a cancelled context, else err.
func ended(err error) error {
	if errors.Is(err, context.Canceled) || backends.KindOf(err) == backends.Canceled {
		return nil
	}
	return err
}

// codeOf returns the exit code behind a child's error.
func codeOf(err error) int {
	var child *ChildError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &child):
		return child.Code
	}
	return -1
}

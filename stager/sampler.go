package stager

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stager-dev/stager/stager/api"
	"github.com/stager-dev/stager/stager/checkpoint"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/stager/sample"
	"github.com/stager-dev/stager/window"
)

// SamplerConfig configures a Sampler.
type SamplerConfig struct {
	Sample  sample.Config // New fills in Source, Plan, Epoch, Epochs, Log and Metrics
	Source  string        // socket of the stager whose input is sampled
	Socket  string        // path of the sampler's own socket
	Version string
	Metrics *prometheus.Registry
	Log     *slog.Logger
}

// Sampler is a daemon that samples an input of another daemon and serves the new files through the
// same API.
type Sampler struct {
	cfg     SamplerConfig
	started time.Time
	drain   context.CancelFunc

	mu      sync.Mutex // guards all below
	phase   api.Phase
	sampler *sample.Sampler // nil until the source has responded
	err     error           // set when sampling has failed
}

// NewSampler returns a sampler. It contacts nothing.
func NewSampler(cfg SamplerConfig) *Sampler {
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	cfg.Sample.Log, cfg.Sample.Metrics = cfg.Log, window.NewMetrics(cfg.Metrics)
	return &Sampler{cfg: cfg, started: time.Now(), phase: api.Starting}
}

// Run serves until ctx ends, which is not a failure, or until sampling fails. The leases stay valid
// until they expire, for a successor in the same directory.
func (s *Sampler) Run(ctx context.Context) error {
	ctx, s.drain = context.WithCancel(ctx)
	defer s.drain()
	socket, err := listen(s.cfg.Socket)
	if err != nil {
		return err
	}
	apiServer := &api.API{
		Window: s.window, Windows: s.windows, Snapshot: s.Snapshot,
		Uploader: func(string) (*checkpoint.Uploader, error) { return nil, api.ErrUnknown },
		Drain:    func(time.Duration) { s.drain() },
		Save:     func(context.Context, int) error { return nil }, // a sampler has no outputs
		Restored: func(string, string, int) error { return nil },  // likewise
		Rewind: func(context.Context, string, []window.Cursor) (window.Cursor, error) {
			return window.Cursor{}, &window.CursorError{Reason: "a sampler follows its input: set the cursor of the input, and restart the sampler"}
		},
		Quality: func(string, iter.Seq2[window.Delivery, error]) (plan.Quality, error) { return plan.Quality{}, nil },
		Metrics: promhttp.HandlerFor(s.cfg.Metrics, promhttp.HandlerOpts{}), Log: s.cfg.Log,
	}
	all := new(servers)
	limits, _ := api.DefaultLimits(descriptors())
	limits.Metrics = api.NewMetrics(s.cfg.Metrics)
	all.start(socket, api.NewServer(apiServer.Handler(), limits, s.cfg.Log), func(err error) {
		s.cfg.Log.Error("API server failed, exiting", "error", err)
		s.drain()
	})
	err = ended(s.live(ctx))
	s.set(api.Ended, err)
	return errors.Join(err, all.close(), s.close())
}

func (s *Sampler) live(ctx context.Context) error {
	from := &inputOf{ctx: ctx, client: api.Client{Socket: s.cfg.Source}, input: s.cfg.Sample.Input, log: s.cfg.Log}
	of, err := from.status()
	if err != nil {
		return err
	}
	if of.Release != window.ReleaseLease {
		return &window.ReleaseError{Input: of.Input, Release: of.Release}
	}
	cfg := s.cfg.Sample
	cfg.Source, cfg.Plan, cfg.Epoch, cfg.Epochs = from, of.Plan, of.Epoch, of.Epochs
	sampler, err := sample.New(cfg)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.sampler, s.phase = sampler, api.Running
	s.mu.Unlock()
	if err := sampler.Run(ctx); err != nil {
		return err
	}
	s.cfg.Log.Info("all samples delivered and acknowledged", "input", of.Input)
	<-ctx.Done() // until then readers get the end
	return nil
}

func (s *Sampler) set(phase api.Phase, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase, s.err = phase, err
}

func (s *Sampler) close() error {
	if s.sampler == nil {
		return nil
	}
	return s.sampler.Close()
}

func (s *Sampler) window(input string) (*window.Window, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case input != s.cfg.Sample.Input:
		return nil, fmt.Errorf("%w: this is a sampler of %s", api.ErrUnknown, s.cfg.Sample.Input)
	case s.err != nil:
		return nil, s.err
	case s.sampler == nil:
		return nil, api.ErrNotYet
	}
	return s.sampler.Window(), nil
}

func (s *Sampler) windows() (open []*window.Window, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sampler == nil {
		return nil, s.err == nil
	}
	return []*window.Window{s.sampler.Window()}, false
}

// Snapshot returns the whole current state.
func (s *Sampler) Snapshot() api.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := api.Input{Name: s.cfg.Sample.Input, Mode: "sample", Source: s.cfg.Source, Path: s.cfg.Sample.Dir}
	if s.sampler != nil {
		w := s.sampler.Window().Status()
		in.Window, in.Ready = &w, w.Ready
	}
	if s.err != nil {
		in.Error = s.err.Error()
	}
	snap := api.Snapshot{
		Version: s.cfg.Version, Plan: "samples of " + in.Name, Phase: s.phase, Started: s.started,
		Ready: in.Ready && s.phase != api.Ended, Inputs: []api.Input{in},
	}
	if !snap.Ready {
		snap.Waiting = "filling the first file"
	}
	return snap
}

// inputOf is an input of another stager, as a [sample.Source]. It waits while that daemon starts or
// restarts.
type inputOf struct {
	ctx    context.Context
	client api.Client
	input  string
	log    *slog.Logger
}

var _ sample.Source = (*inputOf)(nil)

// insist retries until the daemon gives a final response.
func (i *inputOf) insist(ctx context.Context, method, path string, query url.Values, out any) (code int, header http.Header, err error) {
	pause, reported := 50*time.Millisecond, false
	for {
		code, header, err = i.client.Call(ctx, method, path, query, nil, out)
		if !api.Unready(err) {
			return code, header, err
		}
		if pause > time.Second && !reported {
			i.log.Warn("waiting for the sampled stager", "error", err)
			reported = true
		}
		select {
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, 2*time.Second)
	}
}

func (i *inputOf) path(call string) string { return "/v1/inputs/" + url.PathEscape(i.input) + call }

func (i *inputOf) status() (s window.Status, err error) {
	_, _, err = i.insist(i.ctx, http.MethodGet, i.path(""), nil, &s)
	return s, err
}

// Lease implements [sample.Source].
func (i *inputOf) Lease(ctx context.Context, r window.LeaseRequest) (window.Lease, error) {
	query := url.Values{"reader": {r.Reader}, "wait": {r.Wait.String()}, "mixes": {"true"}}
	if r.Epoch != nil {
		query.Set("epoch", strconv.Itoa(*r.Epoch))
	}
	if r.EndEarly {
		query.Set("end", "early")
	}
	var l api.LeaseResponse
	code, header, err := i.insist(ctx, http.MethodPost, i.path("/lease"), query, &l)
	switch {
	case err != nil:
		return window.Lease{}, err
	case code == http.StatusNoContent:
		return window.Lease{}, &window.WaitError{Cause: api.WaitCause(header)}
	case l.End:
		return window.Lease{}, &window.EndError{Epoch: l.Epoch, Early: l.Early}
	}
	return window.Lease{
		ID: l.Lease, Reader: r.Reader, Epoch: l.Epoch, Pos: l.Pos, Path: l.Path, Name: filepath.Base(l.Path), Tree: l.Dir,
		Size: l.Size, Samples: l.Samples, Digest: l.Digest, Attempt: l.Attempt,
	}, nil
}

// lease sends a request (ack, nack, return or renew) for a lease.
func (i *inputOf) lease(id, verb string, query url.Values) error {
	_, _, err := i.insist(i.ctx, http.MethodPost, "/v1/leases/"+url.PathEscape(id)+"/"+verb, query, nil)
	if refused, is := errors.AsType[*api.RefusedError](err); is && refused.Status == http.StatusGone {
		return window.ErrNoLease
	}
	return err
}

// Ack implements [sample.Source].
func (i *inputOf) Ack(id string) error { return i.lease(id, "ack", nil) }

// Nack implements [sample.Source].
func (i *inputOf) Nack(id, reason string) error {
	return i.lease(id, "nack", url.Values{"reason": {reason}})
}

// PutBack implements [sample.Source].
func (i *inputOf) PutBack(id string) error { return i.lease(id, "return", nil) }

// Held implements [sample.Source].
func (i *inputOf) Held(reader string) ([]string, error) {
	s, err := i.status()
	for _, r := range s.Readers {
		if r.ID == reader {
			return r.Leases, err
		}
	}
	return nil, err
}

// Renew implements [sample.Source].
func (i *inputOf) Renew(id string) error { return i.lease(id, "renew", nil) }

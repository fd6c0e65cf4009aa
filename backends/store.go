package backends

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/stager-dev/stager/backends/sys"
)

// Options configure a Store. The zero value works.
type Options struct {
	Connections int           // cap on concurrent requests, as memory allows; 0: adaptive, within Capabilities
	Memory      int64         // bytes that the process may use; 0: no limit. Concurrency drops near it
	Bandwidth   *rate.Limiter // bytes per second, may be shared by stores; nil: no limit
	// Yield, if not nil, is called before a Put reads n more bytes. It may block to give way to
	// more urgent transfers.
	Yield      func(ctx context.Context, n int) error
	NoHedge    bool          // disables hedged requests
	RetryFor   time.Duration // time without progress before giving up; 0: DefaultRetryFor
	StallAfter time.Duration // a stream without bytes for this long is cancelled; 0: DefaultStallAfter
	Log        *slog.Logger  // nil: no logging
	Metrics    *Metrics      // nil: no metrics
	// Getenv reads the environment; nil: an empty one. Protocols use it and never the process
	// environment.
	Getenv func(string) string
	// Secrets is a directory of credential files, such as a mounted Kubernetes Secret. The doc of
	// each protocol lists the file names. It may be empty.
	Secrets string
}

// Default timeouts of a Store.
const (
	DefaultRetryFor   = 2 * time.Minute
	DefaultStallAfter = 30 * time.Second
)

// A Store is a directory of a backend, with retries, limits, metrics and errors that name it. All
// methods are safe for concurrent use.
//
// Methods return errors of type *Error, or *LocalError when the local source or destination of the
// bytes failed. They retry Retryable errors until Options.RetryFor passes without progress.
type Store struct {
	backend      Backend
	name         string
	prefix       string // prepended to keys for the backend: "" or ending in "/"
	self         string // the backend key of the URL itself
	dir          bool   // the URL ended in "/", so it names no object
	opts         Options
	metrics      *schemeMetrics
	capabilities Capabilities
	requests     *semaphore
	hedge        *hedger     // nil when hedging is disabled or unsafe
	parts        PartCreator // nil if the backend does not implement it
	outage       *outage
	paging       *paging
	turn         func(ctx context.Context) error // waits before each attempt; may be nil
}

// NewStore returns a Store on b. name appears in errors and logs.
func NewStore(b Backend, name string, opts Options) *Store {
	s := newStore("", name, opts)
	s.stand(b)
	return s
}

// newStore returns a Store without a backend, of the scheme with that name.
func newStore(scheme, name string, opts Options) *Store {
	if opts.RetryFor <= 0 {
		opts.RetryFor = DefaultRetryFor
	}
	if opts.StallAfter <= 0 {
		opts.StallAfter = DefaultStallAfter
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Metrics == nil {
		opts.Metrics = NewMetrics(nil)
	}
	return &Store{name: name, opts: opts, metrics: opts.Metrics.of(scheme), dir: true, outage: new(outage), paging: new(paging)}
}

// stand attaches the backend and sets up the limits that depend on its Capabilities.
func (s *Store) stand(b Backend) {
	s.backend, s.capabilities = b, b.Capabilities()
	if asked := s.opts.Connections; asked > 0 {
		s.requests = newSemaphore(min(asked, boundStart), newCappedLimiter(boundStart, asked, s.opts.Memory, func(n int) {
			s.opts.Log.Warn("using fewer concurrent requests than configured to limit memory", "asked", asked, "now", n)
		}))
	} else {
		start, most := max(s.capabilities.Parallelism, 1), concurrencyForFiles()
		start, most = min(start, most), min(s.capabilities.MaxParallelism, most)
		limiter := newConcurrencyLimiter(start, most, s.opts.Memory)
		if limiter != nil {
			limiter.processors = sys.ProcessorTime
		}
		s.requests = newSemaphore(start, limiter)
	}
	s.parts, _ = b.(PartCreator)
	if s.capabilities.Hedged && !s.opts.NoHedge {
		s.hedge = &hedger{new(hedge), s.requests, func(answered string) {
			s.metrics.hedges.WithLabelValues(s.metrics.scheme, answered).Inc()
		}}
	}
}

// Name returns the URL of the store without parameters.
func (s *Store) Name() string { return s.name }

// Capabilities returns those of the backend.
func (s *Store) Capabilities() Capabilities { return s.capabilities }

// Backend returns the underlying backend and the prefix of the store's keys in it. It is meant for
// contract tests: it bypasses everything that a Store adds.
func (s *Store) Backend() (b Backend, prefix string) { return s.backend, s.prefix }

// LocalPath returns the local directory that contains the store's keys. ok is false if the store is
// not local.
func (s *Store) LocalPath() (dir string, ok bool) {
	local, ok := s.backend.(Local)
	if !ok {
		return "", false
	}
	return filepath.Join(local.Dir(), filepath.FromSlash(s.prefix)), true
}

// HubCommit returns the commit that the store reads, and the prefix of the store's keys in it. ok is
// false if the store is not a repository of the Hugging Face Hub.
func (s *Store) HubCommit() (commit HubCommit, prefix string, ok bool) {
	hub, ok := s.backend.(Hub)
	if !ok {
		return HubCommit{}, "", false
	}
	return hub.Commit(), s.prefix, true
}

// Connections returns the current limit of concurrent requests.
func (s *Store) Connections() int { return s.requests.now() }

// Workers returns how many goroutines keep the store busy at any concurrency that the limiter may
// reach, at most 32. Surplus goroutines wait.
func (s *Store) Workers() int { return min(s.requests.most(), 32) }

// Close closes the backend's connections, including those of Sub stores.
func (s *Store) Close() error { return s.backend.Close() }

// Sub returns the directory dir of s. It shares the connections and limits of s.
func (s *Store) Sub(dir string) *Store {
	dir = strings.Trim(dir, "/")
	if dir == "" {
		return s
	}
	sub := *s
	sub.name = strings.TrimSuffix(s.name, "/") + "/" + dir
	sub.self = s.prefix + dir
	sub.prefix = sub.self + "/"
	sub.dir = false
	return &sub
}

// Narrow returns s with its own limit of concurrent requests, separate from that of s.
func (s *Store) Narrow(connections int) *Store {
	narrow := *s
	narrow.requests = newSemaphore(max(connections, 1), nil)
	if s.hedge != nil {
		narrow.hedge = &hedger{s.hedge.hedge, narrow.requests, s.hedge.count}
	}
	return &narrow
}

// Impatient returns s with the shorter of its own RetryFor and retryFor.
func (s *Store) Impatient(retryFor time.Duration) *Store {
	impatient := *s
	impatient.opts.RetryFor = min(s.opts.RetryFor, retryFor)
	return &impatient
}

// After returns s such that each request first waits for turn to return. It is for requests that
// give way to more urgent ones. The pages of a listing are one request.
func (s *Store) After(turn func(ctx context.Context) error) *Store {
	after := *s
	after.turn = turn
	return &after
}

// Bandwidth returns the bandwidth limit in bytes per second, which other stores may share. limited is
// false if there is none.
func (s *Store) Bandwidth() (perSecond float64, limited bool) {
	if s.opts.Bandwidth == nil || s.opts.Bandwidth.Limit() == rate.Inf {
		return 0, false
	}
	return float64(s.opts.Bandwidth.Limit()), true
}

// Self looks for an object with the exact name that the store was opened with. For
// s3://b/models/m.bin it returns a Store of the directory models and the object m.bin. Kind
// NotExist means that the name can only be a directory.
func (s *Store) Self(ctx context.Context) (*Store, Object, error) {
	if s.dir || s.self == "" {
		return nil, Object{}, &Error{Op: "stat", Store: s.name, Kind: NotExist, Err: errors.New("this names a directory")}
	}
	parent := *s
	base := s.self
	parent.prefix = ""
	if i := strings.LastIndexByte(s.self, '/'); i >= 0 {
		base, parent.prefix = s.self[i+1:], s.self[:i+1]
	}
	parent.self = strings.TrimSuffix(parent.prefix, "/")
	parent.dir = true
	parent.name = strings.TrimSuffix(strings.TrimSuffix(s.name, base), "/")
	obj, err := parent.Stat(ctx, base)
	if err != nil {
		return nil, Object{}, err
	}
	return &parent, obj, nil
}

// Stat describes one object. It fails with kind NotExist when there is none.
func (s *Store) Stat(ctx context.Context, key string) (obj Object, err error) {
	err = s.retry(ctx, "stat", key, func(a *attempt) error {
		obj, err = s.backend.Stat(a, s.prefix+key)
		return err
	})
	obj.Key = key
	return obj, err
}

// Delete removes an object. Deleting a missing object is not an error.
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.retry(ctx, "delete", key, func(a *attempt) error {
		return s.backend.Delete(a, s.prefix+key)
	})
}

// Sweep calls over for incomplete writes to keys that begin with prefix, and removes those for
// which over returns true; see Sweeper. It finds nothing if the protocol is not a Sweeper.
func (s *Store) Sweep(ctx context.Context, prefix string, over func(Orphan) bool) error {
	sweeper, ok := s.backend.(Sweeper)
	if !ok {
		return nil
	}
	return s.retry(ctx, "sweep", prefix, func(a *attempt) error {
		return sweeper.Sweep(a, s.prefix+prefix, func(r Orphan) bool {
			r.Key = strings.TrimPrefix(r.Key, s.prefix)
			return over(r)
		})
	})
}

// ReadAll returns the current contents of a small object. An object larger than limit bytes is an
// error of kind Invalid.
func (s *Store) ReadAll(ctx context.Context, key string, limit int64) ([]byte, Object, error) {
	obj, err := s.Stat(ctx, key)
	if err != nil {
		return nil, Object{}, err
	}
	if obj.Size > limit {
		return nil, Object{}, &Error{
			Op: "read", Store: s.name, Key: key, Kind: Invalid,
			Err: fmt.Errorf("it has %d bytes, want at most %d", obj.Size, limit),
		}
	}
	buf := make([]byte, obj.Size)
	_, err = s.ReadRange(ctx, obj, 0, obj.Size, Stretch{Bytes: buf}, nil)
	return buf, obj, err
}

// PutBytes writes a small object.
func (s *Store) PutBytes(ctx context.Context, key string, p []byte, opts CreateOptions) (Object, error) {
	return s.Put(ctx, key, bytes.NewReader(p), int64(len(p)), opts)
}

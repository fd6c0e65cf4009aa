package backends

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// Options are the surroundings of a store. The zero value works.
type Options struct {
	Connections int           // requests at once, as far as memory lets it; 0: what the backend likes, and where Capabilities allow more, what is found to serve
	Memory      int64         // bytes that the process may take; 0: no limit. Near it there are fewer requests at once
	Bandwidth   *rate.Limiter // bytes per second, may be shared by stores; nil: no limit
	// Yield, when not nil, is asked before n bytes more of a Put are read, and may wait:
	// what is sent can make way for something that is more urgent.
	Yield      func(ctx context.Context, n int) error
	NoHedge    bool          // no read is asked a second time before the first was answered
	RetryFor   time.Duration // how long a store may fail without progress; 0: DefaultRetryFor
	StallAfter time.Duration // a stream without bytes for so long is cut; 0: DefaultStallAfter
	Log        *slog.Logger  // nil: silent
	Metrics    *Metrics      // nil: not counted
	// Getenv reads the environment; nil: an empty one. Protocols ask it and never
	// the process.
	Getenv func(string) string
	// Secrets is a directory with credential files, as a Kubernetes Secret is mounted;
	// each protocol says in its doc which names it looks for. May be empty.
	Secrets string
}

// How patient a Store is when Options do not say.
const (
	DefaultRetryFor   = 2 * time.Minute
	DefaultStallAfter = 30 * time.Second
)

// A Store is a directory of a backend, with retry, limits, metrics and errors that
// name it. All methods may be called from many goroutines at once.
//
// Its methods return errors of type *Error, or *LocalError when the place that bytes
// were copied to or from failed. They retry what is Retryable until
// Options.RetryFor has gone by without progress.
type Store struct {
	backend      Backend
	scheme       Scheme
	name         string
	prefix       string // of the backend's keys: "" or ending in "/"
	self         string // the backend's key that the URL itself names
	dir          bool   // the URL ended in "/", so it names no object
	opts         Options
	capabilities Capabilities
	requests     *semaphore
	hedge        *hedge      // nil when the backend does not say that asking twice changes nothing
	parts        PartCreator // nil when the backend has not the ability
	outage       *outage
}

// NewStore wraps a backend. name is shown in errors and logs.
func NewStore(b Backend, name string, opts Options) *Store {
	s := newStore(name, opts)
	s.stand(b)
	return s
}

// newStore makes a Store that has no backend yet.
func newStore(name string, opts Options) *Store {
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
	return &Store{name: name, opts: opts, dir: true, outage: new(outage)}
}

// stand puts the Store on a backend.
func (s *Store) stand(b Backend) {
	s.backend, s.capabilities = b, b.Capabilities()
	if asked := s.opts.Connections; asked > 0 {
		s.requests = newSemaphore(min(asked, boundStart), newCappedLimiter(boundStart, asked, s.opts.Memory, func(n int) {
			s.opts.Log.Warn("there are fewer requests at once than were asked for, since more would take too much memory", "asked", asked, "now", n)
		}))
	} else {
		start, most := max(s.capabilities.Parallelism, 1), concurrencyForFiles()
		start, most = min(start, most), min(s.capabilities.MaxParallelism, most)
		s.requests = newSemaphore(start, newConcurrencyLimiter(start, most, s.opts.Memory))
	}
	s.parts, _ = b.(PartCreator)
	if s.capabilities.Hedged && !s.opts.NoHedge {
		s.hedge = new(hedge)
	}
}

// Name is the store's URL without parameters.
func (s *Store) Name() string { return s.name }

// Capabilities are the backend's.
func (s *Store) Capabilities() Capabilities { return s.capabilities }

// Backend is what the store stands on, and what its keys begin with there. It is for
// tests of the contract: it has nothing of what a Store adds.
func (s *Store) Backend() (b Backend, prefix string) { return s.backend, s.prefix }

// LocalPath returns the directory of this machine that the store's keys are below, and
// whether it is such a store.
func (s *Store) LocalPath() (dir string, ok bool) {
	local, ok := s.backend.(interface{ Dir() string })
	if !ok {
		return "", false
	}
	return filepath.Join(local.Dir(), filepath.FromSlash(s.prefix)), true
}

// Connections is how many requests the store makes at once, now.
func (s *Store) Connections() int { return s.requests.now() }

// Workers is how many may ask at once and keep the store busy, whatever number of requests
// it is found to serve well: those that are too many wait.
func (s *Store) Workers() int { return min(s.requests.most(), 32) }

// Hint says in one sentence what to do about an error of this store, or "".
func (s *Store) Hint(err error) string {
	switch {
	case KindOf(err) != Permission:
		return ""
	case errors.Is(err, ErrClock):
		return "Set this machine's clock, for example by NTP. The credentials were not checked."
	}
	return s.scheme.Credentials
}

// Close ends the backend's connections, also those of Sub stores.
func (s *Store) Close() error { return s.backend.Close() }

// Sub is the directory dir of s, sharing its connections and limits.
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

// Narrow is s with so many requests at once, that do not count among those of s.
func (s *Store) Narrow(connections int) *Store {
	narrow := *s
	narrow.requests = newSemaphore(max(connections, 1), nil)
	return &narrow
}

// Impatient is s with requests that give up after failing for so long without progress,
// if those of s do not sooner.
func (s *Store) Impatient(retryFor time.Duration) *Store {
	impatient := *s
	impatient.opts.RetryFor = min(s.opts.RetryFor, retryFor)
	return &impatient
}

// Self looks for an object with the very name that the store was opened with: for
// s3://b/models/m.bin the object m.bin, and a Store of the directory models. Kind
// NotExist says that the name stands for a directory, if anything.
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

// List yields the objects below prefix; see Source. A listing that breaks goes on
// behind the last key that it yielded.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		last, stopped := "", false
		err := s.retry(ctx, "list", prefix, func(ctx context.Context, watchdog *stallDetector) error {
			resumed := last
			for obj, err := range s.backend.List(ctx, s.prefix+prefix) {
				if err != nil {
					return err
				}
				obj.Key = strings.TrimPrefix(obj.Key, s.prefix)
				if obj.Key <= resumed {
					watchdog.alive()
					continue // yielded before the listing broke, or the directory itself
				}
				if obj.Key <= last {
					return Errorf(Corrupt, "list", prefix, "%q is listed after %q, so some keys may be missing", obj.Key, last)
				}
				last = obj.Key
				watchdog.Reset()
				watchdog.Pause() // the time that the caller takes is not the store's
				if !yield(obj, nil) {
					stopped = true
					return nil
				}
				watchdog.alive()
			}
			return nil
		})
		if err != nil && !stopped {
			yield(Object{}, err)
		}
	}
}

// Stat describes one object; kind NotExist when there is none.
func (s *Store) Stat(ctx context.Context, key string) (obj Object, err error) {
	err = s.retry(ctx, "stat", key, func(ctx context.Context, _ *stallDetector) error {
		obj, err = s.backend.Stat(ctx, s.prefix+key)
		return err
	})
	obj.Key = key
	return obj, err
}

// Delete removes an object; one that is not there is no error.
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.retry(ctx, "delete", key, func(ctx context.Context, _ *stallDetector) error {
		return s.backend.Delete(ctx, s.prefix+key)
	})
}

// Sweep asks over about what is there of writes to keys that begin with prefix and that
// have not ended, and removes what it says nobody writes any more; see Sweeper. Where
// the protocol has not the ability nothing is found.
func (s *Store) Sweep(ctx context.Context, prefix string, over func(Orphan) bool) error {
	sweeper, ok := s.backend.(Sweeper)
	if !ok {
		return nil
	}
	return s.retry(ctx, "sweep", prefix, func(ctx context.Context, _ *stallDetector) error {
		return sweeper.Sweep(ctx, s.prefix+prefix, func(r Orphan) bool {
			r.Key = strings.TrimPrefix(r.Key, s.prefix)
			return over(r)
		})
	})
}

// ReadAll returns a small object whole, as it is now; one over limit bytes is an
// error of kind Invalid.
func (s *Store) ReadAll(ctx context.Context, key string, limit int64) ([]byte, Object, error) {
	obj, err := s.Stat(ctx, key)
	if err != nil {
		return nil, Object{}, err
	}
	if obj.Size > limit {
		return nil, Object{}, &Error{
			Op: "read", Store: s.name, Key: key, Kind: Invalid,
			Err: fmt.Errorf("it has %d bytes, and at most %d are expected", obj.Size, limit),
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

// named puts the store's name, the operation and the key onto an error, once.
func named(err error, op, store, key string) error {
	var e *Error
	if !errors.As(err, &e) {
		return &Error{Op: op, Store: store, Key: key, Kind: KindOf(err), Err: err}
	}
	if e.Store != "" {
		return err
	}
	out := *e
	out.Op, out.Store, out.Key = op, store, key
	return &out
}

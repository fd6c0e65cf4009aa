package backends

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// remindAfter is how often the log repeats that a store or a request still fails.
const remindAfter = 30 * time.Second

// unknownTries is how often an error of kind Unknown is tried: often enough for a
// hiccup that nobody classified, too rarely to hide a defect.
const unknownTries = 5

// retry calls try until it succeeds, fails for good, or has failed for RetryFor
// without progress.
func (s *Store) retry(ctx context.Context, op, key string, try func(context.Context, *stallDetector) error) error {
	delay := &backoff.ExponentialBackOff{
		InitialInterval: 100 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: 10 * time.Second,
	}
	since, failures, unknown := time.Now(), 0, 0
	var silent, failed, told time.Time // since when, when first, and when a person last heard of it
	delay.Reset()
	for {
		asked, moved, err := s.attempt(ctx, op, try)
		if err == nil {
			return nil
		}
		var local *LocalError
		if errors.As(err, &local) {
			return local
		}
		if ctx.Err() != nil {
			return &Error{Op: op, Store: s.name, Key: key, Kind: Canceled, Err: context.Cause(ctx)}
		}
		err = named(err, op, s.name, key)
		if moved {
			since, failures, unknown = time.Now(), 0, 0
			delay.Reset()
		}
		if failures++; failures == 1 {
			silent, failed = asked, time.Now()
			if moved {
				silent = failed
			}
		}
		kind := KindOf(err)
		if kind == Unknown {
			unknown++
		}
		var e *Error
		if again := errors.As(err, &e) && e.Again; !kind.Retryable() && !again {
			return err
		}
		if unknown >= unknownTries {
			return gaveUp(err, failures, time.Since(since))
		}
		pause := delay.NextBackOff()
		if e != nil {
			pause = max(pause, e.RetryAfter)
		}
		if time.Since(since)+pause > s.opts.RetryFor {
			return gaveUp(err, failures, time.Since(since))
		}
		s.opts.Metrics.retries.WithLabelValues(s.scheme.Name, op, kind.String()).Inc()
		level := slog.LevelDebug
		if failures >= 3 && time.Since(told) >= remindAfter { // the first two are nobody's business
			if told = time.Now(); s.outage.fails(silent, failed) {
				level = slog.LevelWarn
			}
		}
		s.opts.Log.Log(ctx, level, "the store fails, trying again", "error", err, "kind", kind,
			"pause", pause.Round(time.Millisecond), "giving_up_after", s.opts.RetryFor)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// gaveUp says beside the last error how patient the Store was.
func gaveUp(err error, tries int, since time.Duration) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	out := *e
	out.Err = fmt.Errorf("%w (gave up after %d tries without progress in %v)", e.Err, tries, since.Round(time.Millisecond))
	return &out
}

// attempt is one try under the watchdog, holding one of the store's slots; a
// listing holds none, since those who read what it yields need them, and opening none,
// since there are none yet. It reports when it asked, and whether bytes moved.
func (s *Store) attempt(ctx context.Context, op string, try func(context.Context, *stallDetector) error) (asked time.Time, moved bool, err error) {
	if op != "list" && op != "open" {
		if err := s.requests.acquire(ctx); err != nil {
			return time.Now(), false, err
		}
		defer func() { s.requests.release(asked, err) }()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := watch(s.opts.StallAfter, func() { cancel(errStalled) })
	defer watchdog.Pause()
	ctx = context.WithValue(ctx, stallDetectorKey{}, watchdog)
	err = try(ctx, watchdog)
	if err != nil && errors.Is(context.Cause(ctx), errStalled) {
		err = &Error{Kind: Unavailable, Err: errStalled}
	}
	if err == nil && answers[op] {
		s.responded(watchdog)
	}
	s.opts.Metrics.observe(s.scheme.Name, op, err, time.Since(watchdog.asked))
	return watchdog.asked, watchdog.moved.Load(), err
}

// answers are the operations that a server answers. Others end well without it where a
// protocol puts off asking.
var answers = map[string]bool{"list": true, "stat": true, "read": true, "commit": true, "delete": true}

// responded hears that something came to the request that a watchdog watches.
func (s *Store) responded(watchdog *stallDetector) {
	if away := s.outage.responding(watchdog.asked); away > 0 {
		s.opts.Log.Info("the store answers again", "store", s.name, "away", away.Round(100*time.Millisecond))
	}
}

// errStalled is what the watchdog says.
var errStalled = errors.New("no bytes came for too long, so the request was cut")

// A watchdog ends a request in which nothing moves. Total time-outs are of no use
// for objects of unknown size over links of unknown speed; silence is.
type stallDetector struct {
	timer *time.Timer
	after time.Duration
	asked time.Time    // when the request was made
	moved atomic.Bool  // some bytes came, or went
	last  atomic.Int64 // when the last came or went, in nanoseconds after asked
}

func watch(after time.Duration, bite func()) *stallDetector {
	return &stallDetector{timer: time.AfterFunc(after, bite), after: after, asked: time.Now()}
}

type stallDetectorKey struct{}

// Moved tells the watchdog over the request of ctx that bytes moved. The Store sees
// those that it hands to a protocol or gets from it; a protocol tells of others,
// such as what it sends in Commit. They keep the request alive and are no progress: a
// store that takes all bytes and then fails, again and again, is given up.
func Moved(ctx context.Context) {
	if watchdog, ok := ctx.Value(stallDetectorKey{}).(*stallDetector); ok {
		watchdog.alive()
	}
}

// Waits tells the watchdog over the request of ctx that the store sent bytes which carry
// nothing, such as the blanks of a server that is not done. They keep the request alive
// for waitsFor times as long as silence would.
func Waits(ctx context.Context) {
	if watchdog, ok := ctx.Value(stallDetectorKey{}).(*stallDetector); ok && time.Since(watchdog.asked)-time.Duration(watchdog.last.Load()) < waitsFor*watchdog.after {
		watchdog.timer.Reset(watchdog.after)
	}
}

// waitsFor makes five minutes of half a minute: S3 takes some to assemble a large object.
const waitsFor = 10

// AfterStall returns ctx, or a context that lasts for a while where the watchdog has ended
// ctx: for a look at what became of the request that was cut.
func AfterStall(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	if errors.Is(context.Cause(ctx), errStalled) {
		return context.WithTimeout(context.WithoutCancel(ctx), within)
	}
	return ctx, func() {}
}

// Reset says that something moved; the silence begins anew.
func (d *stallDetector) Reset() {
	d.moved.Store(true)
	d.alive()
}

// alive says that the store answers, though with nothing new: the silence begins
// anew, and the patience does not.
func (d *stallDetector) alive() {
	d.last.Store(int64(time.Since(d.asked)))
	d.timer.Reset(d.after)
}

// Pause ends the watch, until the next kick or alive.
func (d *stallDetector) Pause() { d.timer.Stop() }

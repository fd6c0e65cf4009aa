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

// remindAfter is the interval of repeated log lines about a failing store or request.
const remindAfter = 30 * time.Second

// unknownTries is the number of attempts for errors of kind Unknown: enough for an unclassified
// hiccup, too few to hide a defect.
const unknownTries = 5

// retry calls try until it succeeds, fails permanently, or makes no progress for RetryFor.
func (s *Store) retry(ctx context.Context, op, key string, try func(context.Context, *stallDetector) error) error {
	delay := &backoff.ExponentialBackOff{
		InitialInterval: 100 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: 10 * time.Second,
	}
	since, failures, unknown := time.Now(), 0, 0
	var silent, failed, reported time.Time // last response, first failure, last warning
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
		if failures >= 3 && time.Since(reported) >= remindAfter { // two failures are not worth a warning
			if reported = time.Now(); s.outage.fails(silent, failed) {
				level = slog.LevelWarn
			}
		}
		s.opts.Log.Log(ctx, level, "store request failed, retrying", "error", err, "kind", kind,
			"pause", pause.Round(time.Millisecond), "giving_up_after", s.opts.RetryFor)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// gaveUp adds the number of attempts and the time spent to the last error.
func gaveUp(err error, tries int, since time.Duration) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	out := *e
	out.Err = fmt.Errorf("%w (gave up after %d tries without progress in %v)", e.Err, tries, since.Round(time.Millisecond))
	return &out
}

// attempt runs try once, under the stall detector and with a permit of the semaphore. A listing needs
// no permit, because the readers of its results need them. Neither does opening, because the
// semaphore does not exist yet. attempt returns the send time and whether bytes moved.
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

// answers are the operations whose success proves a response of the server. Others may succeed
// without one if the protocol defers its requests.
var answers = map[string]bool{"list": true, "stat": true, "read": true, "commit": true, "delete": true}

// responded records that data arrived for the request of a stall detector.
func (s *Store) responded(watchdog *stallDetector) {
	if away := s.outage.responding(watchdog.asked); away > 0 {
		s.opts.Log.Info("store responds again", "store", s.name, "away", away.Round(100*time.Millisecond))
	}
}

// errStalled is the cause with which the stall detector cancels a request.
var errStalled = errors.New("no bytes received for too long, request canceled")

// A stallDetector cancels a request in which no bytes move. A total timeout does not work for
// objects of unknown size over links of unknown speed; silence is a usable signal.
type stallDetector struct {
	timer *time.Timer
	after time.Duration
	asked time.Time    // when the request was sent
	moved atomic.Bool  // some bytes were received or sent
	last  atomic.Int64 // time of the last bytes, in nanoseconds after asked
}

func watch(after time.Duration, bite func()) *stallDetector {
	return &stallDetector{timer: time.AfterFunc(after, bite), after: after, asked: time.Now()}
}

type stallDetectorKey struct{}

// Moved reports to the stall detector of ctx that bytes moved. The Store already sees the bytes
// that it exchanges with a protocol; a protocol reports others, such as those sent in Commit. They
// keep the request alive but are not progress, so a store that accepts all bytes and then always
// fails is given up.
func Moved(ctx context.Context) {
	if watchdog, ok := ctx.Value(stallDetectorKey{}).(*stallDetector); ok {
		watchdog.alive()
	}
}

// Waits reports to the stall detector of ctx that the store sent bytes without content, such as the
// whitespace of a server that is still busy. They keep the request alive for at most waitsFor times
// the stall timeout.
func Waits(ctx context.Context) {
	if watchdog, ok := ctx.Value(stallDetectorKey{}).(*stallDetector); ok && time.Since(watchdog.asked)-time.Duration(watchdog.last.Load()) < waitsFor*watchdog.after {
		watchdog.timer.Reset(watchdog.after)
	}
}

// waitsFor allows five minutes with the default of 30s: S3 may take minutes to assemble a large
// object.
const waitsFor = 10

// AfterStall returns ctx, or a fresh context that lasts for within if the stall detector has
// cancelled ctx. Use it to find out what became of the cancelled request.
func AfterStall(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	if errors.Is(context.Cause(ctx), errStalled) {
		return context.WithTimeout(context.WithoutCancel(ctx), within)
	}
	return ctx, func() {}
}

// Reset records progress and restarts the stall timer.
func (d *stallDetector) Reset() {
	d.moved.Store(true)
	d.alive()
}

// alive restarts the stall timer without recording progress: the store responds, but with nothing
// new.
func (d *stallDetector) alive() {
	d.last.Store(int64(time.Since(d.asked)))
	d.timer.Reset(d.after)
}

// Pause stops the stall timer until the next Reset or alive.
func (d *stallDetector) Pause() { d.timer.Stop() }

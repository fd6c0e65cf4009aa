package backends

import (
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/dustin/go-humanize/english"
)

// unknownTries is the number of attempts for errors of kind Unknown: enough for an unclassified
// hiccup, too few to hide a defect.
const unknownTries = 5

// retrier decides whether and when the failed attempts of one request are repeated: with
// exponential pauses, until patience passes without progress.
type retrier struct {
	patience time.Duration
	delay    backoff.ExponentialBackOff
	since    time.Time // of the last progress
	failures int       // since then
	unknown  int       // those of kind Unknown
}

func newRetrier(patience time.Duration) retrier {
	r := retrier{patience: patience, since: time.Now(), delay: backoff.ExponentialBackOff{
		InitialInterval:     100 * time.Millisecond,
		RandomizationFactor: 0.5,
		Multiplier:          2,
		MaxInterval:         10 * time.Second,
	}}
	r.delay.Reset()
	return r
}

// next returns the pause before the next attempt, or the final error of the request. err is that of
// the failed attempt, and moved reports whether it made progress.
func (r *retrier) next(err error, moved bool) (pause time.Duration, final error) {
	if moved {
		r.since, r.failures, r.unknown = time.Now(), 0, 0
		r.delay.Reset()
	}
	r.failures++
	kind := KindOf(err)
	if kind == Unknown {
		r.unknown++
	}
	var e *Error
	if again := errors.As(err, &e) && e.Again; !kind.Retryable() && !again {
		return 0, err
	}
	if r.unknown >= unknownTries {
		return 0, r.gaveUp(err)
	}
	pause = r.delay.NextBackOff()
	if e != nil {
		pause = max(pause, e.RetryAfter)
	}
	if time.Since(r.since)+pause > r.patience {
		return 0, r.gaveUp(err)
	}
	return pause, nil
}

// gaveUp adds the number of attempts and the time spent to the last error.
func (r *retrier) gaveUp(err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	out := *e
	out.Err = fmt.Errorf("%w (gave up after %s without progress in %v)", e.Err, english.Plural(r.failures, "try", "tries"), time.Since(r.since).Round(time.Millisecond))
	return &out
}

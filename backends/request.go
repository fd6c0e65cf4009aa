package backends

import (
	"context"
	"errors"
	"time"
)

// outcome is how an attempt ended.
type outcome struct {
	asked time.Time // when the request was sent
	moved bool      // some bytes were received or sent
	err   error
}

// retry sends the request of a method. It passes these stages, from the outside in. Each has a file
// of its own and knows nothing of the others:
//
//	retrier        retry.go      repeats failed attempts until RetryFor passes without progress
//	failureLog     outage.go     reduces the failures of all requests to a few log lines
//	semaphore      semaphore.go  grants one permit per attempt; limiter.go adapts their number
//	attempt        stall.go      is cancelled when no bytes move
//	Metrics        metrics.go    counts attempts and retries
//
// Within an attempt, reads and writes add:
//
//	hedger         hedge.go      sends a read again if the response is late
//	throttle       bandwidth.go  waits for the bandwidth limit
//	pacer          pace.go       gives way to more urgent transfers, and separates progress from repetition
func (s *Store) retry(ctx context.Context, op, key string, try func(*attempt) error) error {
	tried := s.once(ctx, op, try)
	if tried.err == nil {
		return nil
	}
	return s.retryAfter(ctx, tried, op, key, try)
}

// retryAfter is retry after a first attempt that failed. It is a function of its own because hundreds
// of goroutines have the frame of retry on their stack.
func (s *Store) retryAfter(ctx context.Context, tried outcome, op, key string, try func(*attempt) error) error {
	retries, failures := newRetrier(s.opts.RetryFor), failureLog{outage: s.outage}
	retries.since = tried.asked
	for tried.err != nil {
		var local *LocalError
		if errors.As(tried.err, &local) {
			return local
		}
		if ctx.Err() != nil {
			return &Error{Op: op, Store: s.name, Key: key, Kind: Canceled, Err: context.Cause(ctx)}
		}
		err := named(tried.err, op, s.name, key)
		pause, final := retries.next(err, tried.moved)
		if final != nil {
			return final
		}
		kind := KindOf(err)
		s.metrics.retries.WithLabelValues(s.metrics.scheme, op, kind.String()).Inc()
		s.opts.Log.Log(ctx, failures.level(retries.failures, tried), "store request failed, retrying", "error", err, "kind", kind,
			"pause", pause.Round(time.Millisecond), "giving_up_after", s.opts.RetryFor)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		tried = s.once(ctx, op, try)
	}
	return nil
}

// once runs try once, with a permit of the semaphore and under the stall detector. A listing
// needs no permit, because the readers of its results need them. Neither does a sweep, which lists.
// Neither does opening, because the semaphore does not exist yet.
func (s *Store) once(ctx context.Context, op string, try func(*attempt) error) (tried outcome) {
	if s.turn != nil {
		if err := s.turn(ctx); err != nil {
			return outcome{asked: time.Now(), err: err}
		}
	}
	if op != "list" && op != "sweep" && op != "open" {
		if err := s.requests.acquire(ctx); err != nil {
			return outcome{asked: time.Now(), err: err}
		}
		defer func() { s.requests.release(tried.asked, tried.err) }()
	}
	tried = watched(ctx, s.opts.StallAfter, try)
	if tried.err == nil && answers[op] {
		s.responded(tried.asked)
	}
	s.metrics.observe(op, tried.err, time.Since(tried.asked))
	return tried
}

// answers are the operations whose success proves a response of the server. Others may succeed
// without one if the protocol defers its requests.
var answers = map[string]bool{"list": true, "stat": true, "read": true, "commit": true, "delete": true}

// responded records that data arrived for a request sent at asked.
func (s *Store) responded(asked time.Time) {
	if away := s.outage.responding(asked); away > 0 {
		s.opts.Log.Info("store responds again", "store", s.name, "away", away.Round(100*time.Millisecond))
	}
}

// named adds the store, the operation and the key to an error that does not have them yet.
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

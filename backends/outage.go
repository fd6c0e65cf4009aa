package backends

import (
	"log/slog"
	"sync"
	"time"
)

// remindAfter is the interval of repeated log lines about a failing store or request.
const remindAfter = 30 * time.Second

// outage tracks the time in which a Store and its Subs get no response. It reduces the failures of
// all requests to a few log lines: one when the outage starts, one every half minute, and one when
// it ends.
//
// Buffered responses to older requests do not prove that the server is alive. So outage compares
// the times at which answered requests were sent.
type outage struct {
	mu           sync.Mutex // guards the fields below
	lastResponse time.Time  // send time of the latest request with a response
	since        time.Time  // start of the outage; zero: none, or not logged
	logged       time.Time  // when it was first logged
	again        time.Time  // when it was last logged
}

// fails records a request that keeps failing. since is the time of the last response, first the
// time of the first failure. It reports whether to log a warning: not if the outage was already
// logged within the last half minute.
func (o *outage) fails(since, first time.Time) (tell bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lastResponse.After(first) {
		return true // other requests succeed, so this failure is its own
	}
	now := time.Now()
	if !o.since.IsZero() {
		if now.Sub(o.again) < remindAfter {
			return false
		}
		o.again = now
		return true
	}
	o.since, o.logged, o.again = since, now, now
	return true
}

// responding records data received for a request sent at asked. It returns the length of the outage
// if this ends one that was logged, else 0.
func (o *outage) responding(asked time.Time) (away time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if asked.After(o.lastResponse) {
		o.lastResponse = asked
	}
	if o.since.IsZero() || asked.Before(o.logged) {
		return 0
	}
	away, o.since = time.Since(o.since), time.Time{}
	return away
}

// failureLog decides at which level the failed attempts of one request are logged.
type failureLog struct {
	outage   *outage   // of the store
	silent   time.Time // last response
	failed   time.Time // first failure since then
	reported time.Time // last warning
}

// level returns the level for the failure of an attempt. It is the given number of failures in a
// row, of which two are not worth a warning.
func (f *failureLog) level(failures int, tried outcome) slog.Level {
	if failures == 1 {
		f.silent, f.failed = tried.asked, time.Now()
		if tried.moved {
			f.silent = f.failed
		}
	}
	if failures >= 3 && time.Since(f.reported) >= remindAfter {
		if f.reported = time.Now(); f.outage.fails(f.silent, f.failed) {
			return slog.LevelWarn
		}
	}
	return slog.LevelDebug
}

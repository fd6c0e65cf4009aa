package backends

import (
	"sync"
	"time"
)

// outage is what a Store and its Subs know of the time in which nobody answers them.
// It makes few lines of the log out of what all requests see: that the store is away,
// again after each half minute, and that it came back.
//
// What still comes to requests from before, out of the buffers between, says nothing
// of a server that has died; so what counts is when the answered were asked.
type outage struct {
	mu           sync.Mutex // guards all below
	lastResponse time.Time  // when the youngest request was made that was answered
	since        time.Time  // the beginning; zero: there is none, or nobody was told
	logged       time.Time  // when it was first told of
	again        time.Time  // and when last
}

// fails hears of a request that has failed again and again, first at a moment and
// without an answer since a moment before. It tells whether a person should hear of it
// too: not when a line of the last half minute says that nobody is answered.
func (o *outage) fails(since, first time.Time) (tell bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lastResponse.After(first) {
		return true // others are answered, so it is this request's own trouble
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

// responding hears that something came to a request made at a moment. It tells how long
// the store was away, if that ends an outage of which somebody was told, or 0.
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

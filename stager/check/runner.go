package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
)

// checker runs the contract's tests as testing.T would, and records their failures in the report.
type checker struct {
	run *run
	ctx context.Context //nolint:containedctx // it is that of the test, as in testing.T

	mu      sync.Mutex // guards all below
	promise Promise
	cleanup []func()
}

func (c *checker) Helper()                  {}
func (c *checker) Context() context.Context { return c.ctx }
func (c *checker) Logf(string, ...any)      {}

func (c *checker) Cleanup(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleanup = append(c.cleanup, f)
}

func (c *checker) Errorf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.promise.State = Fails
	c.promise.Found = append(c.promise.Found, fmt.Sprintf(format, args...))
	for _, arg := range args {
		if err, ok := arg.(error); ok {
			c.promise.Kind = worse(c.promise.Kind, backends.KindOf(err))
			c.promise.cause = cmp.Or(c.promise.cause, causeOf(err))
		}
	}
}

// causeOf returns the request that failed and why, without the key and the attempts, so that causes
// of several tests can be compared; "" if no request failed.
func causeOf(err error) string {
	var e *backends.Error
	if !errors.As(err, &e) || e.Kind == backends.Canceled {
		return ""
	}
	why, _, _ := strings.Cut(e.Err.Error(), " (gave up after ")
	return e.Op + ": " + why
}

func (c *checker) Fatalf(format string, args ...any) {
	c.Errorf(format, args...)
	runtime.Goexit()
}

func (c *checker) Skipf(format string, args ...any) {
	c.mu.Lock()
	if c.promise.State == Holds {
		c.promise.State, c.promise.Found = Unknown, []string{fmt.Sprintf(format, args...)}
	}
	c.mu.Unlock()
	runtime.Goexit()
}

// Run runs one test, unless the check was cancelled or the store is unreachable.
func (c *checker) Run(sentence string, f func(*checker)) bool {
	r := c.run
	if r.ctx.Err() != nil {
		return false
	}
	ctx, cancel := context.WithTimeoutCause(r.ctx, testFor, errTooLong)
	defer cancel()
	sub := &checker{run: r, ctx: ctx, promise: Promise{Sentence: sentence, State: Holds}}
	if r.stopped != "" {
		sub.promise.State, sub.promise.Found = Unknown, []string{r.stopped}
	} else {
		r.step(sentence)
		began := time.Now()
		sub.do(f)
		if errors.Is(context.Cause(ctx), errTooLong) {
			sub.Errorf("%v", errTooLong)
		}
		sub.judge(time.Since(began))
	}
	p := sub.promise
	if words := promises[sentence]; p.State != Holds && p.Means == "" {
		p.Means, p.Do = words.means, words.do
	}
	p.Area = promises[sentence].area
	r.report.Promises = append(r.report.Promises, p)
	return p.State != Fails
}

// Limits of the time that failing requests may take. Most requests of a test are repeated for
// retryFor alone; those that bypass the Store wait for as long as the test may take.
const (
	testFor = 5 * time.Minute // one test
	lostFor = 4 * time.Minute // all tests in which requests failed; the rest is not tested
)

var errTooLong = fmt.Errorf("the test did not end within %v: the store does not answer", testFor)

// Why the rest is not tested.
const (
	stoppedGone = "not tested, because the store is unreachable"
	stoppedStat = "not tested, because the store fails the requests that all tests need"
	stoppedLost = "not tested, because requests of other tests failed for too long"
)

// judge finds out what a test means whose requests failed: the store is away, or it fails these
// requests while it responds to others, which breaks the promise.
func (c *checker) judge(took time.Duration) {
	r, p := c.run, &c.promise
	if p.State != Fails || r.ctx.Err() != nil {
		return
	}
	timedOut := errors.Is(context.Cause(c.ctx), errTooLong)
	if p.Kind != backends.Unavailable && p.Kind != backends.Throttled && !timedOut {
		return
	}
	if r.lost += took; r.lost > lostFor {
		r.stopped = stoppedLost
	}
	probe := func(store *backends.Store) bool {
		_, err := store.Stat(r.ctx, r.rel+"gone")
		return !backends.KindOf(err).Retryable()
	}
	broken := p.Kind
	if broken == backends.Unavailable {
		broken = backends.Invalid
	}
	switch {
	case probe(r.Store.Impatient(1)): // at the first attempt
		p.Kind = broken
	case probe(r.Store):
		p.Means, p.Do = goneMeans, goneDo
	case r.lists():
		p.Kind, r.stopped = broken, stoppedStat
	default:
		p.Kind, r.stopped = backends.Unavailable, stoppedGone
		p.Means, p.Do = goneMeans, goneDo
	}
}

// lists reports whether the store responds to a listing.
func (r *run) lists() bool {
	for _, err := range r.scratch.Impatient(1).List(r.ctx, "") {
		return err == nil
	}
	return true
}

// do calls f in a separate goroutine, which Fatalf and Skipf can end.
func (c *checker) do(f func(*checker)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, clean := range slices.Backward(c.cleanup) {
				clean()
			}
		}()
		f(c)
	}()
	<-done
}

// worse returns the more serious of two kinds. All other kinds become Invalid: the store responds,
// but violates the contract.
func worse(a, b backends.Kind) backends.Kind {
	for _, k := range []backends.Kind{backends.Corrupt, backends.Permission, backends.Unavailable, backends.Throttled, backends.NoSpace} {
		if a == k || b == k {
			return k
		}
	}
	return backends.Invalid
}

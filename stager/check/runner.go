package check

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/stager-dev/stager/backends"
)

// checker runs the contract's tests as testing.T would, and records their failures in the report.
type checker struct {
	run *run

	mu      sync.Mutex // guards all below
	promise Promise
	cleanup []func()
}

func (c *checker) Helper()                  {}
func (c *checker) Context() context.Context { return c.run.ctx }
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
		}
	}
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
	sub := &checker{run: r, promise: Promise{Sentence: sentence, State: Holds}}
	if r.gone != nil {
		sub.promise.State, sub.promise.Found = Unknown, []string{"not tested, because the store is unreachable"}
	} else {
		r.step(sentence)
		sub.do(f)
	}
	p := sub.promise
	if words := promises[sentence]; p.State != Holds {
		p.Means, p.Do = words.means, words.do
	}
	p.Area = promises[sentence].area
	if p.State == Fails && p.Kind.Retryable() && p.Kind != backends.Unknown {
		if _, err := r.Store.Stat(r.ctx, r.rel+"gone"); backends.KindOf(err).Retryable() {
			r.gone = err
			p.Means, p.Do = goneMeans, goneDo
		}
	}
	r.report.Promises = append(r.report.Promises, p)
	return p.State != Fails
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

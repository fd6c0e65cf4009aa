package backends

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// errStalled is the cause with which the stall detector cancels a request.
var errStalled = errors.New("no bytes received for too long, request canceled")

// An attempt is one try of a request, with a stall detector: it is cancelled when no bytes move. A
// total timeout does not work for objects of unknown size over links of unknown speed; silence is a
// usable signal.
//
// It is the context of the request, because what reports bytes may be a transport below an SDK, which
// has nothing else of the Store.
type attempt struct {
	context.Context

	timer *time.Timer
	after time.Duration
	asked time.Time    // when the request was sent
	moved atomic.Bool  // some bytes were received or sent
	last  atomic.Int64 // time of the last bytes, in nanoseconds after asked
}

// watched runs an attempt, which is cancelled when no bytes move for after.
func watched(ctx context.Context, after time.Duration, try func(*attempt) error) outcome {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := &attempt{Context: ctx, timer: time.AfterFunc(after, func() { cancel(errStalled) }), after: after, asked: time.Now()}
	defer a.Pause()
	err := try(a)
	if err != nil && errors.Is(context.Cause(ctx), errStalled) {
		err = &Error{Kind: Unavailable, Err: errStalled}
	}
	return outcome{a.asked, a.moved.Load(), err}
}

// Reset records progress and restarts the stall timer.
func (a *attempt) Reset() {
	a.moved.Store(true)
	a.alive()
}

// alive restarts the stall timer without recording progress: the store responds, but with nothing
// new.
func (a *attempt) alive() {
	a.last.Store(int64(time.Since(a.asked)))
	a.timer.Reset(a.after)
}

// Pause stops the stall timer until the next Reset or alive.
func (a *attempt) Pause() { a.timer.Stop() }

// attemptKey is the key of the attempt among the values of its context.
type attemptKey struct{}

// Value implements context.Context.
func (a *attempt) Value(key any) any {
	if key == (attemptKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// Moved reports to the stall detector of ctx that bytes moved. The Store already sees the bytes
// that it exchanges with a protocol; a protocol reports others, such as those sent in Commit. They
// keep the request alive but are not progress, so a store that accepts all bytes and then always
// fails is given up.
func Moved(ctx context.Context) {
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		a.alive()
	}
}

// Waits reports to the stall detector of ctx that the store sent bytes without content, such as the
// whitespace of a server that is still busy. They keep the request alive for at most waitsFor times
// the stall timeout.
func Waits(ctx context.Context) {
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok && time.Since(a.asked)-time.Duration(a.last.Load()) < waitsFor*a.after {
		a.timer.Reset(a.after)
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

// watchedReader resets the stall detector for each Read that returns bytes.
type watchedReader struct {
	io.Reader
	attempt *attempt
	store   *Store // records the first byte; nil afterwards
}

func (k *watchedReader) Read(p []byte) (int, error) {
	n, err := k.Reader.Read(p)
	if n > 0 {
		k.reset()
	}
	return n, err
}

func (k *watchedReader) reset() {
	k.attempt.Reset()
	if k.store != nil {
		k.store.responded(k.attempt.asked)
		k.store = nil
	}
}

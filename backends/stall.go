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

// A stallDetector cancels a request in which no bytes move. A total timeout does not work for
// objects of unknown size over links of unknown speed; silence is a usable signal.
//
// It is the context of the request, because what reports bytes may be a transport below an SDK, which
// has nothing else of the Store.
type stallDetector struct {
	context.Context //nolint:containedctx // it is that of the request

	timer *time.Timer
	after time.Duration
	asked time.Time    // when the request was sent
	moved atomic.Bool  // some bytes were received or sent
	last  atomic.Int64 // time of the last bytes, in nanoseconds after asked
}

// watched runs try under a stall detector that cancels it when no bytes move for after.
func watched(ctx context.Context, after time.Duration, try attempt) outcome {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := &stallDetector{Context: ctx, timer: time.AfterFunc(after, func() { cancel(errStalled) }), after: after, asked: time.Now()}
	defer watchdog.Pause()
	err := try(watchdog, watchdog)
	if err != nil && errors.Is(context.Cause(ctx), errStalled) {
		err = &Error{Kind: Unavailable, Err: errStalled}
	}
	return outcome{watchdog.asked, watchdog.moved.Load(), err}
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

// stallDetectorKey is the key of the stall detector among the values of its context.
type stallDetectorKey struct{}

// Value implements context.Context.
func (d *stallDetector) Value(key any) any {
	if key == (stallDetectorKey{}) {
		return d
	}
	return d.Context.Value(key)
}

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

// watchedReader resets the stall detector for each Read that returns bytes.
type watchedReader struct {
	io.Reader
	watchdog *stallDetector
	store    *Store // records the first byte; nil afterwards
}

func (k *watchedReader) Read(p []byte) (int, error) {
	n, err := k.Reader.Read(p)
	if n > 0 {
		k.reset()
	}
	return n, err
}

func (k *watchedReader) reset() {
	k.watchdog.Reset()
	if k.store != nil {
		k.store.responded(k.watchdog.asked)
		k.store = nil
	}
}

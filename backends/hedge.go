package backends

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"
)

// hedge sends hedged requests: a second, identical read when the response is unusually late. Late
// means later than the 95th percentile of recent responses and later than slowResponse. Otherwise
// one busy server of many, or one lost packet, delays everyone who waits for the last file. The
// first response wins; the other request is cancelled.
//
// Hedging is only for stores whose Capabilities allow it. It must not add load to a store in
// trouble, so the budget is limited: at most five hedges per hundred requests, none while the store
// throttles, none while memory is short, and never above the maximum of the limiter.
type hedge struct {
	mu        sync.Mutex // guards the fields below
	responses [256]time.Duration
	count     int           // total number of responses
	usual     time.Duration // 95th percentile; 0: unknown
	credit    float64       // hedges that may be sent
}

const (
	hedgeShare   = 0.05
	hedgeBurst   = 16.0 // maximum hedges in a row
	slowResponse = 100 * time.Millisecond
	enoughToSay  = 64 // responses needed before the percentile is computed
	sayEvery     = 32 // responses between updates of the percentile
)

// patience returns how much longer to wait for a response after waiting for waited. A result of
// zero or less means that the response is late. While the percentile is unknown, it returns
// slowResponse and the caller asks again.
func (h *hedge) patience(waited time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.usual == 0 {
		return slowResponse
	}
	return max(h.usual, slowResponse) - waited
}

// responded records the latency of a response.
func (h *hedge) responded(took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.credit = min(h.credit+hedgeShare, hedgeBurst)
	h.responses[h.count%len(h.responses)] = took
	if h.count++; h.count >= enoughToSay && h.count%sayEvery == 0 {
		sorted := h.responses
		known := sorted[:min(h.count, len(sorted))]
		slices.Sort(known)
		h.usual = known[len(known)*95/100]
	}
}

// take consumes the credit for one hedge and reports whether there was any.
func (h *hedge) take() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.credit < 1 {
		return false
	}
	h.credit--
	return true
}

// errHedged cancels the request that lost the race.
var errHedged = errors.New("the hedged request finished first")

// hedger opens ranges with hedged requests.
type hedger struct {
	*hedge
	requests *semaphore // grants the second request
	count    func(answered string)
}

// openFunc opens a range.
type openFunc func(ctx context.Context) (io.ReadCloser, error)

// open calls ask, and calls it again if the response is late. The result obeys ctx.
func (h *hedger) open(ctx context.Context, ask openFunc) (io.ReadCloser, error) {
	r := &race{hedger: h, ctx: ctx, ask: ask, asked: time.Now()}
	body, err := r.run()
	if err == nil {
		h.responded(time.Since(r.asked))
	}
	return body, err
}

// race is a read that is requested once or twice. Its first success is the result.
type race struct {
	*hedger
	ctx   context.Context //nolint:containedctx // of both requests
	ask   openFunc
	asked time.Time // when the first request was sent

	mu                  sync.Mutex         // guards the fields below
	over                bool               // one of the requests has succeeded
	second              chan io.ReadCloser // the response to the second request, if it won; nil until it is sent
	timer               *time.Timer
	endFirst, endSecond context.CancelCauseFunc
}

// run sends the first request and returns the response of the winner.
func (r *race) run() (io.ReadCloser, error) {
	first, endFirst := context.WithCancelCause(r.ctx)
	r.mu.Lock()
	r.endFirst = endFirst
	r.timer = time.AfterFunc(r.patience(0), r.hedgeIfLate)
	r.mu.Unlock()
	body, err := r.ask(first)
	r.mu.Lock()
	r.timer.Stop()
	lost, second, endSecond := r.over, r.second, r.endSecond
	r.over = true
	r.mu.Unlock()
	if lost {
		if err == nil {
			body.Close() //nolint:errcheck // it was answered as well, but later
		}
		return <-second, nil
	}
	if endSecond != nil {
		endSecond(errHedged)
	}
	return body, err
}

// hedgeIfLate sends the second request if the response is late and the budget allows it. Otherwise
// it runs again later.
func (r *race) hedgeIfLate() {
	r.mu.Lock()
	if r.over {
		r.mu.Unlock()
		return
	}
	wait := r.patience(time.Since(r.asked))
	if wait <= 0 && !r.requests.spare(r.take) {
		wait = r.patience(0)
	}
	if wait > 0 {
		r.timer.Reset(wait)
		r.mu.Unlock()
		return
	}
	var ctx context.Context
	ctx, r.endSecond = context.WithCancelCause(r.ctx)
	r.second = make(chan io.ReadCloser, 1)
	r.mu.Unlock()
	body, err := r.ask(ctx)
	r.requests.unspare(err)
	r.mu.Lock()
	won := err == nil && !r.over
	r.over = r.over || won
	r.mu.Unlock()
	switch {
	case won:
		r.second <- body
		r.endFirst(errHedged)
		r.count("second")
		return
	case err == nil:
		body.Close() //nolint:errcheck // nobody reads it
	}
	r.count("first")
}

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

// openRange calls the backend's OpenRange, hedged where allowed.
func (s *Store) openRange(ctx context.Context, obj Object, off, n int64) (io.ReadCloser, error) {
	if s.hedge == nil {
		return s.backend.OpenRange(ctx, obj, off, n)
	}
	asked := time.Now()
	body, err := s.race(ctx, asked, func(ctx context.Context) (io.ReadCloser, error) { return s.backend.OpenRange(ctx, obj, off, n) })
	if err == nil {
		s.hedge.responded(time.Since(asked))
	}
	return body, err
}

// race sends a request and, if the response is late, a second one. The result obeys ctx.
func (s *Store) race(ctx context.Context, asked time.Time, ask func(context.Context) (io.ReadCloser, error)) (io.ReadCloser, error) {
	var (
		mu        sync.Mutex // guards the variables below
		over      bool       // one of the requests has succeeded
		timer     *time.Timer
		endSecond context.CancelCauseFunc
	)
	first, endFirst := context.WithCancelCause(ctx)
	second := make(chan io.ReadCloser, 1)
	again := func() {
		mu.Lock()
		if over {
			mu.Unlock()
			return
		}
		wait := s.hedge.patience(time.Since(asked))
		if wait <= 0 && !s.requests.spare(s.hedge.take) {
			wait = s.hedge.patience(0)
		}
		if wait > 0 {
			timer.Reset(wait)
			mu.Unlock()
			return
		}
		var now context.Context
		now, endSecond = context.WithCancelCause(ctx)
		mu.Unlock()
		body, err := ask(now)
		s.requests.unspare(err)
		mu.Lock()
		won := err == nil && !over
		over = over || won
		mu.Unlock()
		answered := "first"
		switch {
		case won:
			answered = "second"
			second <- body
			endFirst(errHedged)
		case err == nil:
			body.Close() //nolint:errcheck // nobody reads it
		}
		s.opts.Metrics.hedges.WithLabelValues(s.scheme.Name, answered).Inc()
	}
	mu.Lock()
	timer = time.AfterFunc(s.hedge.patience(0), again)
	mu.Unlock()
	body, err := ask(first)
	mu.Lock()
	timer.Stop()
	lost, end := over, endSecond
	over = true
	mu.Unlock()
	if lost {
		if err == nil {
			body.Close() //nolint:errcheck // it was answered as well, but later
		}
		return <-second, nil
	}
	if end != nil {
		end(errHedged)
	}
	return body, err
}

package backends

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"
)

// hedge asks a second time where the answer to a read takes unusually long: longer than
// 95 of 100 of the last answers took, and than slowResponse. One server of many that is
// busy, or a packet that is lost, would else cost everybody who waits for the last file.
// The first of both answers counts, and the other request is ended.
//
// That is for stores whose Facts say so, of which asking twice changes nothing. It must
// not make a store that has trouble have more: in a hundred requests there are five such
// at most, none while the store says that it is too much, none while memory is short, and
// none more than the store may have at once.
type hedge struct {
	mu        sync.Mutex // guards all below
	responses [256]time.Duration
	count     int           // of them, ever
	usual     time.Duration // 95 of 100 took less; 0: it is not known
	credit    float64       // requests that may be made
}

const (
	hedgeShare   = 0.05
	hedgeBurst   = 16.0 // as many may be made one after the other
	slowResponse = 100 * time.Millisecond
	enoughToSay  = 64 // answers, before which nothing is unusual
	sayEvery     = 32 // answers
)

// patience is how much longer to wait for an answer that was asked for so long ago, and
// nothing or less when it takes unusually long. While it is not known what is usual, it
// is to be asked for again.
func (h *hedge) patience(waited time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.usual == 0 {
		return slowResponse
	}
	return max(h.usual, slowResponse) - waited
}

// responded hears how long an answer took.
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

// take takes the credit for one request.
func (h *hedge) take() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.credit < 1 {
		return false
	}
	h.credit--
	return true
}

// errHedged ends the request that was answered later.
var errHedged = errors.New("the same was asked a second time, and that was answered first")

// openRange is the backend's OpenRange, asked a second time if need be.
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

// race asks, and where no answer comes for too long once more. What it returns obeys ctx.
func (s *Store) race(ctx context.Context, asked time.Time, ask func(context.Context) (io.ReadCloser, error)) (io.ReadCloser, error) {
	var (
		mu        sync.Mutex // guards all below
		over      bool       // one of both was answered
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

package backends

import (
	"context"
	"slices"
	"sync"
	"time"
)

// semaphore is a resizable semaphore for the requests of a Store. It grants permits in FIFO order.
// Its limit may change while permits are held.
type semaphore struct {
	mu      sync.Mutex // guards the fields below
	limit   int
	used    int // may exceed the limit after it was reduced
	waiting []chan struct{}
	limiter *concurrencyLimiter // adjusts the limit; nil: fixed

	refused time.Time // last time the store throttled
}

func newSemaphore(n int, concurrencyLimiter *concurrencyLimiter) *semaphore {
	return &semaphore{limit: n, limiter: concurrencyLimiter}
}

// now returns the current limit.
func (s *semaphore) now() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit
}

// most returns the highest limit that the limiter may reach.
func (s *semaphore) most() int {
	if s.limiter != nil {
		return s.limiter.most
	}
	return s.now()
}

// aim returns the intended limit: the user-set cap, even while ramping up, or else the current
// limit.
func (s *semaphore) aim() int {
	if s.limiter != nil && s.limiter.userSet {
		return s.limiter.most
	}
	return s.now()
}

// acquire waits for a permit. After an error there is none to release.
func (s *semaphore) acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.used < s.limit && len(s.waiting) == 0 {
		s.takeLocked()
		s.mu.Unlock()
		return nil
	}
	granted := make(chan struct{})
	s.waiting = append(s.waiting, granted)
	s.mu.Unlock()
	select {
	case <-granted:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, granted); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	} else { // granted in the meantime
		s.used--
		s.grantLocked()
	}
	return ctx.Err()
}

func (s *semaphore) takeLocked() {
	s.used++
	if s.limiter != nil {
		s.limiter.peak = max(s.limiter.peak, s.used)
	}
}

// release returns the permit of a request that was sent at asked and ended with err.
func (s *semaphore) release(asked time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	throttled := KindOf(err) == Throttled
	if throttled {
		s.refused = time.Now()
	}
	switch {
	case s.limiter == nil:
	case throttled:
		s.limit = s.limiter.refused(s.refused, asked, s.limit)
	default:
		s.limiter.requests++
		s.limit = s.limiter.decide(time.Now(), s.limit)
	}
	s.grantLocked()
}

// spare acquires a permit for a hedged request. It succeeds only if the limiter may reach one more,
// the store does not throttle, memory is not short, and allowed returns true. It overtakes the
// waiting requests, which have one permit less until unspare.
func (s *semaphore) spare(allowed func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	most, short := s.limit, false
	if s.limiter != nil {
		most, short = s.limiter.most, s.limiter.isShort()
	}
	if s.used >= most || short || time.Since(s.refused) < afterRefusal || !allowed() {
		return false
	}
	s.takeLocked()
	return true
}

// unspare releases the permit of a hedged request that ended with err. It does not affect the
// measurement of concurrency.
func (s *semaphore) unspare(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if KindOf(err) == Throttled {
		s.refused = time.Now()
	}
	s.used--
	s.grantLocked()
}

// moved records n bytes received or sent.
func (s *semaphore) moved(n int) {
	if s.limiter == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limiter.bytes += int64(n)
	s.limit = s.limiter.decide(time.Now(), s.limit)
	s.grantLocked()
}

func (s *semaphore) grantLocked() {
	for len(s.waiting) > 0 && s.used < s.limit {
		s.takeLocked()
		close(s.waiting[0])
		s.waiting = s.waiting[1:]
	}
}

package backends

import (
	"context"
	"slices"
	"sync"
	"time"
)

// semaphore are the requests that a Store may have under way, granted in the order in which
// they are asked for. How many there are may change while they are in use.
type semaphore struct {
	mu      sync.Mutex // guards all below
	limit   int
	used    int // may be above the limit after this went down
	waiting []chan struct{}
	limiter *concurrencyLimiter // decides on the limit; nil: it stays

	refused time.Time // when the store was last asked too much
}

func newSemaphore(n int, concurrencyLimiter *concurrencyLimiter) *semaphore {
	return &semaphore{limit: n, limiter: concurrencyLimiter}
}

// now is how many there are.
func (s *semaphore) now() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit
}

// most is how many there may come to be.
func (s *semaphore) most() int {
	if s.limiter != nil {
		return s.limiter.most
	}
	return s.now()
}

// aim is how many there are to be: those that were asked for, though they are come to in
// steps, or else those that there are.
func (s *semaphore) aim() int {
	if s.limiter != nil && s.limiter.userSet {
		return s.limiter.most
	}
	return s.now()
}

// acquire waits for a slot. After an error there is none to be released.
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
	} else { // granted meanwhile
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

// release gives back the slot of a request that was made at asked and ended with err.
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

// spare takes a slot for a request that is made a second time, if the store may have one
// more, has not too much, memory is not short, and allowed says so. It is ahead of those
// who wait, who have one less until unspare.
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

// unspare gives back the slot of a request that was made a second time and ended with
// err. It says nothing of how many serve the store well.
func (s *semaphore) unspare(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if KindOf(err) == Throttled {
		s.refused = time.Now()
	}
	s.used--
	s.grantLocked()
}

// moved hears of bytes that came or went.
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

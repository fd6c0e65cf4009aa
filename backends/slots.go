package backends

import (
	"context"
	"slices"
	"sync"
	"time"
)

// slots are the requests that a Store may have under way, granted in the order in which
// they are asked for. How many there are may change while they are in use.
type slots struct {
	mu      sync.Mutex // guards all below
	limit   int
	used    int // may be above the limit after this went down
	waiting []chan struct{}
	climb   *climb // decides on the limit; nil: it stays

	refused time.Time // when the store was last asked too much
}

func newSlots(n int, climb *climb) *slots { return &slots{limit: n, climb: climb} }

// now is how many there are.
func (s *slots) now() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit
}

// most is how many there may come to be.
func (s *slots) most() int {
	if s.climb != nil {
		return s.climb.most
	}
	return s.now()
}

// aim is how many there are to be: those that were asked for, though they are come to in
// steps, or else those that there are.
func (s *slots) aim() int {
	if s.climb != nil && s.climb.asked {
		return s.climb.most
	}
	return s.now()
}

// acquire waits for a slot. After an error there is none to be released.
func (s *slots) acquire(ctx context.Context) error {
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

func (s *slots) takeLocked() {
	s.used++
	if s.climb != nil {
		s.climb.peak = max(s.climb.peak, s.used)
	}
}

// release gives back the slot of a request that was made at asked and ended with err.
func (s *slots) release(asked time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	throttled := KindOf(err) == Throttled
	if throttled {
		s.refused = time.Now()
	}
	switch {
	case s.climb == nil:
	case throttled:
		s.limit = s.climb.refused(s.refused, asked, s.limit)
	default:
		s.climb.requests++
		s.limit = s.climb.decide(time.Now(), s.limit)
	}
	s.grantLocked()
}

// spare takes a slot for a request that is made a second time, if the store may have one
// more, has not too much, memory is not short, and allowed says so. It is ahead of those
// who wait, who have one less until unspare.
func (s *slots) spare(allowed func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	most, short := s.limit, false
	if s.climb != nil {
		most, short = s.climb.most, s.climb.isShort()
	}
	if s.used >= most || short || time.Since(s.refused) < afterRefusal || !allowed() {
		return false
	}
	s.takeLocked()
	return true
}

// unspare gives back the slot of a request that was made a second time and ended with
// err. It says nothing of how many serve the store well.
func (s *slots) unspare(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if KindOf(err) == Throttled {
		s.refused = time.Now()
	}
	s.used--
	s.grantLocked()
}

// moved hears of bytes that came or went.
func (s *slots) moved(n int) {
	if s.climb == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.climb.bytes += int64(n)
	s.limit = s.climb.decide(time.Now(), s.limit)
	s.grantLocked()
}

func (s *slots) grantLocked() {
	for len(s.waiting) > 0 && s.used < s.limit {
		s.takeLocked()
		close(s.waiting[0])
		s.waiting = s.waiting[1:]
	}
}

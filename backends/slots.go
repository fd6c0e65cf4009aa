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
}

func newSlots(n int, climb *climb) *slots { return &slots{limit: n, climb: climb} }

// now is how many there are.
func (s *slots) now() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit
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
	if s.climb != nil {
		now := time.Now()
		if KindOf(err) == Throttled {
			s.limit = s.climb.refused(now, asked, s.limit)
		} else {
			s.climb.requests++
			s.limit = s.climb.decide(now, s.limit)
		}
	}
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

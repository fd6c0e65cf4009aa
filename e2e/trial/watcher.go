package trial

import (
	"context"
	"time"

	"github.com/stager-dev/stager/e2e/room"
)

// Watcher measures how many bytes a directory costs.
type Watcher = room.Watcher

// sampled is the space that a volume has in use, sampled every 20 ms against what was in use at the
// beginning. It counts all that the window causes: directories, journal and reports, too.
type sampled struct {
	used        func() (int64, error)
	first, peak int64
	looks       int
	err         error // of the first sample that failed
}

func (s *sampled) begin(used func() (int64, error)) (err error) {
	s.used = used
	s.first, err = used()
	return err
}

// run samples until ctx ends. The figures may be read when it has returned.
func (s *sampled) run(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s.err == nil {
		ended := ctx.Err() != nil
		now, err := s.used()
		s.peak, s.err = max(s.peak, now-s.first), err
		if s.looks++; ended {
			return
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

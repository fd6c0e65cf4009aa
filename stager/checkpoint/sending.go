package checkpoint

import (
	"context"
	"sync/atomic"
	"time"
)

// upload is a checkpoint that is being uploaded.
type upload struct {
	snap   *snapshot
	total  int64
	done   atomic.Int64
	reused atomic.Int64 // bytes of done that an earlier step has
	waited atomic.Int64 // nanoseconds in which it waited for the positions of inputs
	start  time.Time
	cancel context.CancelFunc
}

// pace returns how the upload went.
func (u *upload) pace() pace { return pace{u.snap.Step, u.total, u.rate(), u.reused.Load()} }

func (u *upload) rate() float64 {
	if took := (time.Since(u.start) - time.Duration(u.waited.Load())).Seconds(); took > 0 {
		return float64(u.done.Load()) / took
	}
	return 0
}

// sending is the checkpoint that is being uploaded. Uploader.mu guards it.
type sending struct {
	now  *upload // nil: none
	last pace    // of the last upload; zero before the first
}

// sends reports whether a snapshot is being uploaded, so that it must stay as it is.
func (s *sending) sends(snap *snapshot) bool { return s.now != nil && s.now.snap == snap }

func (s *sending) begin(up *upload) { s.now = up }

func (s *sending) end() { s.now, s.last = nil, s.now.pace() }

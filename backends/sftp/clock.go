package sftp

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// tick is the resolution of modification times.
const tick = time.Second

// skew is how much the clocks of a server and of this machine may differ.
const skew = time.Minute

// clock estimates the clock of the server from the modification times that it reports: when a time
// is reported, the clock of the server has reached it. The zero value is ready to use, and all
// methods are safe for concurrent use.
type clock struct {
	ahead atomic.Int64 // the lower bound of the difference to the local clock, plus skew
}

// saw records a modification time that the server reported at a local time. Times far in the future
// were set by a program.
func (c *clock) saw(modified, now time.Time) {
	ahead := int64(modified.Sub(now) + skew)
	if ahead > int64(2*skew) {
		return
	}
	for old := c.ahead.Load(); ahead > old; old = c.ahead.Load() {
		if c.ahead.CompareAndSwap(old, ahead) {
			return
		}
	}
}

// unsettled returns how long the clock of the server may still show the second of a modification
// time, as seen at a local time. A file that changes within that time keeps its version.
func (c *clock) unsettled(modified, now time.Time) time.Duration {
	c.saw(modified, now)
	server := now.Add(time.Duration(c.ahead.Load()) - skew)
	if wait := modified.Add(tick).Sub(server); wait > 0 && wait <= tick {
		return wait
	}
	return 0
}

// settle waits until a change of a file would change its version. Two ranges of a file that are
// read before could come from different contents.
func (c *clock) settle(ctx context.Context, key string, modified time.Time) error {
	wait := c.unsettled(modified, time.Now())
	if wait == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return fileshare.Ended(ctx, "read", key)
	case <-time.After(wait):
		backends.Moved(ctx) // waiting is not a stall
		return nil
	}
}

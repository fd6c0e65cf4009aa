package stager

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// An upload has the network for itself until a reader waits, then it trickles, and
// a second after the last wait it has all of it again.
func TestUploadsYieldToReadersThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits atomic.Bool
		a := newArbiter(waits.Load)
		send := func(n int) time.Duration {
			t.Helper()
			start := time.Now()
			for ; n > 0; n -= 1 << 20 {
				if err := a.yield(t.Context(), 1<<20); err != nil {
					t.Fatal(err)
				}
			}
			return time.Since(start)
		}
		if took := send(1 << 30); took != 0 {
			t.Errorf("while nobody waits a GiB is kept for %v, want not at all", took)
		}
		waits.Store(true)
		if took := send(161 << 20); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("while a reader waits 161 MiB take %v, want 10s", took)
		}
		waits.Store(false)
		if took := send(4 << 20); took == 0 {
			t.Error("a moment after the wait uploads run at full speed, want them to trickle on")
		}
		time.Sleep(lasting)
		if took := send(1 << 30); took != 0 {
			t.Errorf("when nobody has waited for a second a GiB is kept for %v, want not at all", took)
		}
	})
}

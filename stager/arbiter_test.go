package stager

import (
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// Uploads trickle while a reader waits, and for a while after it: longer when readers
// wait again soon.
func TestUploadsMakeWayForLongerEachTime(t *testing.T) {
	now := time.Now()
	a := newArbiter(nil, nil)
	if a.holds(now, false) {
		t.Error("before anybody waited uploads trickle")
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		want *= time.Second
		for range 3 { // the reader waits for some time
			if now = now.Add(100 * time.Millisecond); !a.holds(now, true) {
				t.Errorf("wait %d: uploads do not make way", i)
			}
		}
		if !a.holds(now.Add(want-1), false) || a.holds(now.Add(want), false) {
			t.Errorf("wait %d: uploads trickle for %v, want %v", i, a.hold, want)
		}
		now = now.Add(want)
	}
	now = now.Add(2 * longest)
	if a.holds(now, true); a.hold != shortest {
		t.Errorf("after a long calm uploads trickle for %v, want %v", a.hold, shortest)
	}
}

func TestATrickleIsAnEighthOfTheLimit(t *testing.T) {
	for _, tt := range []struct {
		limit *rate.Limiter
		want  time.Duration // for 100 MiB
	}{{nil, 6 * time.Second}, {rate.NewLimiter(80<<20, 1<<20), 10 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			waits := true
			a := newArbiter(func() bool { return waits }, tt.limit)
			send := func() time.Duration {
				start := time.Now()
				for range 100 {
					if err := a.yield(t.Context(), 1<<20); err != nil {
						t.Fatal(err)
					}
				}
				return time.Since(start)
			}
			if took := send(); took.Round(time.Second) != tt.want {
				t.Errorf("while a reader waits 100 MiB take %v, want %v", took, tt.want)
			}
			waits = false
			time.Sleep(longest)
			if took := send(); took != 0 {
				t.Errorf("while nobody waits 100 MiB take %v, want no time", took)
			}
		})
	}
}

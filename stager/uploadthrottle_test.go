package stager

import (
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

func never() bool { return false }

// Uploads are throttled while a reader starves, and for a while after it: longer when readers
// starve again soon.
func TestUploadsMakeWayForLongerEachTime(t *testing.T) {
	now := time.Now()
	a := newUploadThrottle(never, never, nil)
	if a.throttled(now, false) {
		t.Error("before anybody waited uploads trickle")
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		want *= time.Second
		for range 3 { // the reader waits for some time
			if now = now.Add(100 * time.Millisecond); !a.throttled(now, true) {
				t.Errorf("wait %d: uploads do not make way", i)
			}
		}
		if !a.throttled(now.Add(want-1), false) || a.throttled(now.Add(want), false) {
			t.Errorf("wait %d: uploads trickle for %v, want %v", i, a.hold, want)
		}
		now = now.Add(want)
	}
	now = now.Add(2 * longest)
	if a.throttled(now, true); a.hold != shortest {
		t.Errorf("after a long calm uploads trickle for %v, want %v", a.hold, shortest)
	}
}

func TestThrottleMinimumRateIsAnEighthOfTheLimit(t *testing.T) {
	for _, tt := range []struct {
		limit *rate.Limiter
		want  time.Duration // for 100 MiB
	}{{nil, 6 * time.Second}, {rate.NewLimiter(80<<20, 1<<20), 10 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			waits := true
			a := newUploadThrottle(never, func() bool { return waits }, tt.limit)
			a.used = func() time.Duration { return 0 }
			send := func() time.Duration {
				start := time.Now()
				for range 100 {
					if err := a.wait(t.Context(), 1<<20); err != nil {
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

// A save over a fast network kept both processors of a small machine busy, and a trainer whose
// window was full read every shard in twice the time.
func TestUploadsLeaveTheProcessorsToTheTrainer(t *testing.T) {
	const chunk, cost = 32 << 10, 100 * time.Microsecond
	for _, tt := range []struct {
		name  string
		share float64 // of one processor
		more  float64 // used by the rest of this process
		ends  bool
		want  time.Duration // for 10,000 chunks, one after the other
	}{
		{"half of a processor", 0.5, 0, false, 2 * time.Second},
		{"as much as one stream can use", 1, 0, false, time.Second},
		{"feeding uses all of the share", 0.5, 0.6, false, 312 * time.Second / 16},
		{"the trainer has ended", 0.5, 0, true, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			start, own := time.Now(), time.Duration(0)
			a := newUploadThrottle(func() bool { return tt.ends }, never, nil)
			a.share = tt.share
			a.used = func() time.Duration { return own + time.Duration(tt.more*float64(time.Since(start))) }
			for range 10_000 {
				if err := a.wait(t.Context(), chunk); err != nil {
					t.Fatal(err)
				}
				own += cost
				time.Sleep(cost)
			}
			if got := time.Since(start); got < tt.want*9/10 || got > tt.want*11/10 {
				t.Errorf("%s: they took %v, want about %v", tt.name, got, tt.want)
			}
		})
	}
}

func TestThrottleRateOfDueUploads(t *testing.T) {
	now := time.Now()
	in := func(d time.Duration) time.Time { return now.Add(d) }
	for _, tt := range []struct {
		dues []due
		want rate.Limit
	}{
		{nil, 0},
		{[]due{{100, in(10 * time.Second)}}, 10},
		{[]due{{100, in(10 * time.Second)}, {100, in(time.Second)}}, 110},
		{[]due{{100, in(10 * time.Second)}, {1, now}}, rate.Inf},
	} {
		if got := needed(now, tt.dues); got != tt.want {
			t.Errorf("%v: got %v bytes a second, want %v", tt.dues, got, tt.want)
		}
	}
}

// A trainer always waits for its data, because its source is slow (40 MiB/s). A checkpoint of 1,600
// MiB gets 16 MiB/s, or as much as is fetched besides, or the rate that meets the deadline.
func TestThrottleLeavesMinimumRateToCheckpoint(t *testing.T) {
	const size = 1600 << 20
	for _, tt := range []struct {
		name string
		set  func(a *uploadThrottle, start time.Time, left func() int64)
		want time.Duration
	}{
		{"window-first", func(*uploadThrottle, time.Time, func() int64) {}, 100 * time.Second},
		{"balanced", func(a *uploadThrottle, start time.Time, _ func() int64) {
			a.brought = func() int64 { return int64(40 << 20 * time.Since(start).Seconds()) }
		}, 1600 * time.Second / 56},
		{"deadline, which a trickle keeps", func(a *uploadThrottle, start time.Time, left func() int64) {
			a.dues = func() []due { return []due{{left(), start.Add(5 * time.Minute)}} }
		}, 100 * time.Second},
		{"deadline, which needs more", func(a *uploadThrottle, start time.Time, left func() int64) {
			a.dues = func() []due { return []due{{left(), start.Add(50 * time.Second)}} }
		}, 50 * time.Second},
		{"deadline, when it is over", func(a *uploadThrottle, start time.Time, left func() int64) {
			a.dues = func() []due { return []due{{left(), start}} }
		}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			start, left := time.Now(), int64(size)
			a := newUploadThrottle(never, func() bool { return true }, nil)
			a.used = func() time.Duration { return 0 }
			tt.set(a, start, func() int64 { return left })
			for ; left > 0; left -= 1 << 20 {
				if err := a.wait(t.Context(), 1<<20); err != nil {
					t.Fatal(err)
				}
			}
			if got := time.Since(start); got < tt.want*9/10 || got > tt.want*11/10 {
				t.Errorf("%s: it took %v, want about %v", tt.name, got, tt.want)
			}
		})
	}
}

package backends

import (
	"math"
	"runtime/metrics"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// concurrencyLimiter finds how many requests at once serve a store well. Near a store a few do: more
// only cost memory. Where each request waits for a long way, twice as many bring twice
// as much, up to hundreds. Nobody can say before which it is, so it tries: it doubles
// the number as long as that brings a tenth more, takes the last step back when it does
// not, and tries again later.
//
// A store that says it is too much (kind Throttled) halves it, once for all requests
// that were under way, and later steps are small. Memory that runs out takes a quarter,
// and a step that has cost more than spareMemory is taken back.
//
// A number that somebody asked for is a bound: it is come to at once where memory lets it,
// whatever it brings, and kept to whatever the store says.
//
// What was moved counts, and each request as much as requestWorth bytes, so that small
// objects and large ones are measured by the same. New connections take their time, and
// a machine has other work, so one bad measurement says little: the best of a few counts.
// To err upwards costs some memory, to err downwards most of the time.
type concurrencyLimiter struct {
	least, most int
	memory      func() int64 // that the process has
	enough      int64        // of it: with more it would run out; 0: no limit
	base        int64        // of it, when it began to try: the least
	userSet     bool         // somebody asked for most
	short       func(n int)  // hears, once, that memory is short, and of how many there are then; may be nil

	since    time.Time // this measurement began; zero: none has
	bytes    int64
	requests int
	peak     int // of the slots in use

	recent    [tries]float64 // the last measurements of this number, by the second
	measured  int            // how many there were
	before    float64        // the best of the number before
	back      int            // that number; 0: it is not trying
	cautious  bool           // it was told to slow down, and takes small steps
	pause     time.Duration
	next      time.Time // when to try again
	throttled time.Time // when it was last told
}

const (
	minConcurrency = 8
	boundStart     = 32 // from here on what was asked for is come to step by step
	// A measurement takes so long, and longer until as many requests have ended as there
	// are slots; but not forever, since large objects take their time.
	shortMeasure, longMeasure = 50 * time.Millisecond, 500 * time.Millisecond
	requestWorth              = 64 << 10
	worthwhile                = 1.1 // times as much must come for a step to stand
	twice                     = 1.6 // times as much is about twice, with what others do meanwhile
	tries                     = 3   // measurements before one is taken back
	spareMemory               = 16 << 20
	firstPause, longestPause  = 2 * time.Second, time.Minute
	afterRefusal              = 5 * time.Second
)

// newConcurrencyLimiter begins at start; nil where more are not allowed. memory is that of
// Options.
func newConcurrencyLimiter(start, most int, memory int64) *concurrencyLimiter {
	if most <= start {
		return nil
	}
	return &concurrencyLimiter{
		least: min(minConcurrency, start), most: most, pause: firstPause,
		memory: memoryInUse, enough: memory / 4 * 3,
	}
}

// newCappedLimiter begins at start, and goes to the number that was asked for; nil where that is
// so small that it takes no memory worth speaking of.
func newCappedLimiter(start, asked int, memory int64, short func(n int)) *concurrencyLimiter {
	if asked <= minConcurrency {
		return nil
	}
	c := newConcurrencyLimiter(min(start, asked), asked+1, memory)
	c.most, c.userSet, c.short = asked, true, short
	return c
}

// decide is told how many there are, and says how many there shall be.
func (c *concurrencyLimiter) decide(now time.Time, limit int) int {
	took := now.Sub(c.since)
	switch {
	case c.since.IsZero():
		c.begin(now)
		return limit
	case took < shortMeasure, took < longMeasure && c.requests < limit:
		return limit
	}
	rate := (float64(c.bytes) + requestWorth*float64(c.requests)) / took.Seconds()
	full := c.peak >= limit-limit/4
	c.begin(now)
	switch {
	case c.isShort():
		limit = max(limit-limit/4, c.least)
		c.stop(now)
		return c.tell(limit)
	case c.back > 0 && c.memory() > c.base+spareMemory:
		limit = c.back
		c.stop(now)
		return c.tell(limit)
	case !full: // more would change nothing
		return limit
	}
	c.recent[c.measured%tries] = rate
	c.measured++
	switch {
	case c.back > 0 && !c.userSet && rate < c.before*worthwhile:
		if c.measured < tries {
			return limit
		}
		limit = c.back
		c.stop(now)
		return limit
	case limit >= c.most, c.back == 0 && now.Before(c.next):
		c.back = 0
		return limit
	}
	if has := c.memory(); c.base == 0 || has < c.base {
		c.base = has
	}
	far := c.back > 0 && rate >= c.before*twice
	c.before, c.back = slices.Max(c.recent[:min(c.measured, tries)]), limit
	c.measured = 0
	step := limit
	switch {
	case c.cautious:
		step = max(limit/4, 1)
	case far:
		step = 3 * limit
	}
	return min(limit+step, c.most)
}

// isShort says that memory is.
func (c *concurrencyLimiter) isShort() bool { return c.enough > 0 && c.memory() > c.enough }

// tell tells whoever asked for more that there are so many.
func (c *concurrencyLimiter) tell(limit int) int {
	if c.userSet && c.short != nil {
		c.short(limit)
		c.short = nil
	}
	return limit
}

// begin begins a measurement.
func (c *concurrencyLimiter) begin(now time.Time) {
	c.since, c.bytes, c.requests, c.peak = now, 0, 0, 0
}

// stop ends the trying for now.
func (c *concurrencyLimiter) stop(now time.Time) {
	c.back, c.measured = 0, 0
	c.next = now.Add(c.pause)
	c.pause = min(2*c.pause, longestPause)
}

// refused hears of a request made at asked that the store found too much.
func (c *concurrencyLimiter) refused(now, asked time.Time, limit int) int {
	if c.userSet || !asked.After(c.throttled) {
		return limit // or it was under way when the others were refused
	}
	c.throttled = now
	c.stop(now)
	c.cautious, c.next = true, now.Add(max(afterRefusal, c.pause/2))
	c.begin(now)
	return max(limit/2, c.least)
}

// memoryInUse is what the runtime has from the system.
func memoryInUse() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
}

// filesEach is how many descriptors a request may need: a connection, which may still be
// closing when the next is made, a file, and one more for direct writes.
const filesEach = 4

// concurrencyForFiles is how many requests there may be with the descriptors that a process
// may have.
func concurrencyForFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt
	}
	return max(int(min(limit.Cur, 1<<20))/filesEach, minConcurrency)
}

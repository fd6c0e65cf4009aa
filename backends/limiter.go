package backends

import (
	"math"
	"runtime"
	"runtime/metrics"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// concurrencyLimiter is an adaptive concurrency limiter: it finds how many concurrent requests
// serve a store well. Over low-latency links a few suffice and more only cost memory. Over
// high-latency links throughput grows with concurrency, up to hundreds of requests. So the limiter
// probes. It doubles the limit as long as throughput grows by at least 10%, reverts the
// last step otherwise, and probes again later.
//
// An error of kind Throttled halves the limit, once for all requests in flight, and makes later
// steps small. A memory shortage reduces the limit by a quarter. A step that costs more than
// spareMemory is reverted.
//
// It takes no step while the processors are the bottleneck: this process uses nearly all that it may, or at least half of
// them and hardly any of the machine is idle, as with a store on the same machine. More requests would only cost memory and
// cache misses. Throughput does not show this reliably, because it varies and the best of several measurements counts. And no
// step goes much further than the processors do, if each request goes on to cost as much CPU time as in the last measurement.
//
// A user-set limit is a cap. Concurrency ramps up to it as memory allows, whatever the throughput,
// and ignores throttling.
//
// Throughput counts the bytes moved plus requestWorth bytes per request, so that small and large
// objects are comparable. New connections are slow to start and the machine has other work, so the
// best of several measurements counts. A limit that is too high costs some memory; one that is too
// low costs most of the time.
type concurrencyLimiter struct {
	least, most int
	memory      func() int64 // memory use of the process
	// processors returns the CPU time of the process and the idle time of all CPUs; nil: neither is known.
	processors func() (used, idle time.Duration)
	enough     int64       // memory use that counts as a shortage; 0: no limit
	base       int64       // lowest memory use since probing began
	userSet    bool        // most is a user-set cap
	short      func(n int) // called once with the reduced limit when memory is short; may be nil

	since    time.Time     // start of this measurement; zero: none yet
	used     time.Duration // of processors then; negative: unknown
	idle     time.Duration
	bytes    int64
	requests int
	peak     int // peak number of requests in flight

	recent    [tries]float64 // recent throughput at this limit, per second
	measured  int            // number of measurements
	before    float64        // best throughput at the previous limit
	back      int            // the previous limit; 0: not probing
	cautious  bool           // throttled before, so steps are small
	pause     time.Duration
	next      time.Time // time of the next probe
	throttled time.Time // last throttling
}

const (
	minConcurrency = 8
	boundStart     = 32 // a user-set cap above this is reached in steps
	// A measurement lasts at least shortMeasure, then until as many requests have ended as the
	// limit allows. It ends after longMeasure, because large objects take long.
	shortMeasure, longMeasure = 50 * time.Millisecond, 500 * time.Millisecond
	requestWorth              = 64 << 10
	worthwhile                = 1.1 // minimum throughput factor that justifies a step
	twice                     = 1.6 // throughput factor that counts as doubled, with allowance for other load
	tries                     = 3   // measurements before a step is reverted
	spareMemory               = 16 << 20
	firstPause, longestPause  = 2 * time.Second, time.Minute
	afterRefusal              = 5 * time.Second
	// Shares of the processors: used by this process, and by nobody. The last one is less than the resolution of a
	// short measurement on two CPUs.
	nearlyAll, half, little, hardlyAny = 0.9, 0.5, 0.25, 1. / 16
	overAll                            = 1.25 // the share that a step may aim at: new connections cost more than later requests
)

// newConcurrencyLimiter returns a limiter that starts at start and may reach most, or nil if there
// is no room to grow. memory is Options.Memory.
func newConcurrencyLimiter(start, most int, memory int64) *concurrencyLimiter {
	if most <= start {
		return nil
	}
	return &concurrencyLimiter{
		least: min(minConcurrency, start), most: most, pause: firstPause,
		memory: memoryInUse, enough: memory / 4 * 3,
	}
}

// newCappedLimiter returns a limiter that ramps up from start to the user-set cap asked. It returns
// nil if the cap is so small that memory does not matter.
func newCappedLimiter(start, asked int, memory int64, short func(n int)) *concurrencyLimiter {
	if asked <= minConcurrency {
		return nil
	}
	c := newConcurrencyLimiter(min(start, asked), asked+1, memory)
	c.most, c.userSet, c.short = asked, true, short
	return c
}

// decide returns the new limit, given the current one.
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
	load := c.loadSince(took)
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
	case !full: // the limit was not reached, so a higher one changes nothing
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
	if load.busy() && !c.userSet {
		c.stop(now)
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
	if c.userSet {
		return min(limit+step, c.most)
	}
	return min(limit+step, load.reach(limit), c.most)
}

// isShort reports whether memory is short.
func (c *concurrencyLimiter) isShort() bool { return c.enough > 0 && c.memory() > c.enough }

// tell reports a reduced user-set cap once, and returns limit.
func (c *concurrencyLimiter) tell(limit int) int {
	if c.userSet && c.short != nil {
		c.short(limit)
		c.short = nil
	}
	return limit
}

// begin starts a measurement.
func (c *concurrencyLimiter) begin(now time.Time) {
	c.since, c.bytes, c.requests, c.peak = now, 0, 0, 0
	c.used, c.idle = -1, -1
	if c.processors != nil {
		c.used, c.idle = c.processors()
	}
}

// load is how the processors were used in a measurement: shares of those that this process may use, and of the machine's.
// Negative: unknown.
type load struct{ ours, unused float64 }

// loadSince returns the load since begin, which was so long ago.
func (c *concurrencyLimiter) loadSince(took time.Duration) load {
	l := load{-1, -1}
	if c.used < 0 {
		return l
	}
	used, idle := c.processors()
	l.ours = float64(used-c.used) / float64(took) / float64(runtime.GOMAXPROCS(0))
	if c.idle >= 0 {
		l.unused = float64(idle-c.idle) / float64(took) / float64(runtime.NumCPU())
	}
	return l
}

// busy reports whether the processors were the bottleneck.
func (l load) busy() bool {
	return l.ours > nearlyAll || l.ours > half && l.unused >= 0 && l.unused < hardlyAny
}

// reach returns the limit at which this process would use what it may have of the processors, and a quarter more, if limit
// took ours: what nobody used or, while it uses little itself, all of them, since it competes with the others for them.
func (l load) reach(limit int) int {
	if l.ours <= 0 {
		return math.MaxInt
	}
	may := 1.
	if l.ours > little && l.unused >= 0 {
		may = min(l.ours+l.unused*float64(runtime.NumCPU())/float64(runtime.GOMAXPROCS(0)), 1)
	}
	return int(math.Ceil(float64(limit) * overAll * may / l.ours))
}

// stop suspends probing.
func (c *concurrencyLimiter) stop(now time.Time) {
	c.back, c.measured = 0, 0
	c.next = now.Add(c.pause)
	c.pause = min(2*c.pause, longestPause)
}

// refused handles the throttling of a request sent at asked, and returns the new limit.
func (c *concurrencyLimiter) refused(now, asked time.Time, limit int) int {
	if c.userSet || !asked.After(c.throttled) {
		return limit // or it was in flight during the previous throttling
	}
	c.throttled = now
	c.stop(now)
	c.cautious, c.next = true, now.Add(max(afterRefusal, c.pause/2))
	c.begin(now)
	return max(limit/2, c.least)
}

// memoryInUse returns the bytes that the Go runtime has obtained from the system.
func memoryInUse() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
}

// filesEach is the number of descriptors that a request may need: a connection, the previous one
// while it closes, a file, and one more for direct writes.
const filesEach = 4

// concurrencyForFiles returns how many concurrent requests the descriptor limit of the process
// allows.
func concurrencyForFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt
	}
	return max(int(min(limit.Cur, 1<<20))/filesEach, minConcurrency)
}

package disk

import (
	"sync"
	"time"

	"github.com/stager-dev/stager/window/disk/memory"
)

// How a chooser evaluates a device.
const (
	// evaluateEvery is the time for which direct writes are observed before each decision whether
	// they wait for the device. judgeEvery is the time in which the page cache must prove to be
	// faster.
	evaluateEvery = 15 * time.Millisecond
	judgeEvery    = 250 * time.Millisecond
	// A device is slow if direct writes are nearly always in flight, several wait, and each
	// largeWrite takes longer than slowWrite. A single stream can do nothing else while it waits
	// for the device.
	busyShare   = 0.85
	queued      = 1.5
	slowWrite   = time.Millisecond
	singleShare = 0.1
	largeWrite  = 512 << 10
	// A device may pass the data of a tenth of a second at once and then nothing. This share of the
	// recent time must have been slow.
	slowShare = 0.2
	// If at least stalledWrites direct writes wait, and none finishes within slowWrite, no further
	// ones join them while the page cache has plenty of room.
	stalledWrites = 2
	plenty        = 64 << 20
	// Until lateFrom of the page cache is dirty, or half of its room if that is less, the kernel is
	// left to write it: writeback needs processors, too, and a transfer that ends before gains nothing from it.
	lateFrom = 1 << 30
	// While the device is unknown, a direct write waits until fewer than this many are in flight, or
	// they stall. So not all streams stall at once.
	fewWrites = 6
	// Several streams have other work while some of them wait for the device.
	several = 4
	// worthwhile is the factor by which the page cache must be faster than the device.
	worthwhile = 1.05
	// Its first success is judged again after judgeAgain: the device may have begun slowly.
	judgeAgain = 100 * time.Millisecond
	// If the page cache is less than tooSlow times as fast as the device, it fails after judgeSoon, see
	// hopeless. A faster one is not known to be worthless that soon: the device may have passed the data of a
	// tenth of a second at once, and the first pages take the longest.
	judgeSoon = 50 * time.Millisecond
	tooSlow   = 0.75
	// leastRoom is the minimum room in the page cache to start to use it.
	leastRoom = 32 << 20
	// Room that the device writes in less than leastGain gains less than the copies to it cost. The page cache
	// of a control group whose room is worth more stays in use for groupStays judgements if it is at least
	// nearly as fast as the device: what is left in it at the end of a transfer is the gain.
	leastGain  = 200 * time.Millisecond
	groupStays = 8
	nearly     = 0.9
	// feed is how much of the dirty page cache is being written to the device at once, so that the
	// device is never idle and no write waits long behind it. More than flushing means that the
	// kernel empties the cache; a direct write then waits behind it.
	feed     = 16 << 20
	flushing = 64 << 20
	// longEnough is the minimum observation time for a reliable rate of the device.
	longEnough = 150 * time.Millisecond
	// longPause is a time without writes that is longer than the gaps within a stream.
	longPause = 50 * time.Millisecond
	// keptUp is the number of pending bytes below which the device keeps up.
	keptUp = 32 << 20
	// roomEvery is the maximum age of the kernel's figures. roomWait is how long a write waits for
	// room in the cache before it goes to the device anyway.
	roomEvery = 10 * time.Millisecond
	roomWait  = 500 * time.Millisecond
	// With farFrom of room left, or while a group's room is not in use, they are read rarely: that takes 0.2 ms.
	farFrom = 512 << 20
	rarely  = 50 * time.Millisecond
	// After the page cache was no faster, it is not tried for backoff, which doubles each time.
	backoff     = 2 * time.Second
	mostBackoff = time.Minute
)

// chooser decides for each large write to one device whether it bypasses the page cache.
//
// It begins with a comparison of the two ways. Direct writes cost the least if the device is faster than the
// incoming data. While some stall, further ones do not join them if the page cache has plenty of room. Once
// they queue at the device, the excess goes to the page cache ("spilling"), as far as it has room,
// and the device writes as much of that as it can. A write that would soon finish directly stays
// direct. All of that also holds for the writes of several streams to one file, because direct ones do not hold
// its lock while they wait for an unknown device, or beside cached ones: see sys.WriteUnlocked.
type chooser struct {
	room func() (memory.Room, error)
	// starting is held by the one goroutine that makes the kernel start writeback.
	starting sync.Mutex

	mu       sync.Mutex // guards all fields below
	first    comparison
	synced   bool // the latest write was of a file that is synced at the end
	spill    bool
	settling bool    // the device still writes what it had before the latest switch
	changes  int64   // number of switches between the modes
	cached   int64   // bytes written to the page cache
	device   float64 // bytes per second of direct writes
	steady   float64 // the same while they queued
	cache    float64 // bytes per second of all writes while spilling
	retryAt  time.Time
	wait     time.Duration // the next back-off
	files    int           // number of open files

	seen      time.Duration // recent time in which device was measured
	seenBytes float64
	seenSlow  time.Duration // the part of it in which direct writes queued
	slowBytes float64
	passed    time.Time     // when a direct write last finished, or began with no other in flight
	gap       time.Duration // between the last two such times

	one bool // several streams write one file, whose cached writes the kernel serializes

	under    [2]int // writes in flight, by way
	at       time.Time
	since    time.Time // start of the figures below
	held     time.Duration
	busy     time.Duration // time with a direct write in flight
	idle     time.Duration // time without any write, in pauses of at least longPause
	moved    [2]int64      // bytes, by way
	pending  int64         // bytes that waited for disks at since
	waited   bool          // a write waited for room in the cache
	readAt   time.Time     // when the room was read
	now      memory.Room
	unknown  bool
	accepted int // consecutive judgements in favor of the cache
}

// way is how a write reaches the device.
type way int

const (
	past    way = iota // bypasses the page cache
	through            // goes through the page cache
)

func newChooser(room func() (memory.Room, error)) *chooser {
	return &chooser{room: room, wait: backoff}
}

// open counts an opened (1) or closed (-1) file. Each file has at least one stream.
func (c *chooser) open(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files += n
}

// begin returns the way of a write of n bytes, and whether cached writes to the same file may follow, so that
// a direct one must not hold the lock of the file. It may block until the cache has room. shared means
// that several streams write the file, and synced that it is synced at the end. The caller calls end
// after the write.
func (c *chooser) begin(n int, shared, synced bool) (w way, unlocked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.synced = synced
	if c.first.stage == unused {
		c.beginComparison(time.Now())
	}
	single := c.files <= 1 && !shared
	c.one = c.files <= 1 && shared
	w = past
	var until time.Time
	for {
		now := time.Now()
		c.advance(now)
		c.evaluate(now, single)
		if !c.spill {
			if !c.stalled(now) {
				if single || c.known() || c.under[past] < fewWrites || !c.ample(now) {
					break
				}
				c.mu.Unlock() // until one has finished, or they stall
				time.Sleep(slowWrite / 8)
				c.mu.Lock()
				continue
			}
			if c.ample(now) {
				c.now.Free -= int64(n)
				w = through
			}
			break
		}
		c.look(now)
		if c.unknown {
			c.leave(now, backoff)
			break
		}
		backlog := c.now.Flush >= flushing
		if !backlog && (shared || c.files >= several) && c.late() && c.soon(n) {
			break
		}
		if c.now.Free >= int64(n) {
			c.now.Free -= int64(n)
			w = through
			break
		}
		if !backlog { // no room will be freed soon
			break
		}
		c.waited = true
		if until.IsZero() {
			until = now.Add(roomWait)
		}
		if !now.Before(until) {
			break
		}
		c.mu.Unlock()
		time.Sleep(roomEvery / 2)
		c.mu.Lock()
	}
	if w == past && c.under[past] == 0 {
		c.gap, c.passed = 0, c.at
	}
	c.under[w]++
	return w, w == past && shared && (c.spill || !c.known())
}

// end records a finished write.
func (c *chooser) end(w way, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(time.Now())
	c.under[w]--
	c.moved[w] += int64(n)
	if w == past {
		c.gap, c.passed = c.at.Sub(c.passed), c.at
	}
	if w == through {
		c.cached += int64(n)
	}
}

// stalled reports whether several direct writes wait and finish slowly.
func (c *chooser) stalled(now time.Time) bool {
	return c.under[past] >= stalledWrites && max(c.gap, now.Sub(c.passed)) >= slowWrite
}

// known reports whether the device was observed for long enough to tell its rate. Throttled devices
// may pass a tenth of a second's data at once.
func (c *chooser) known() bool { return c.seen >= longEnough/2 }

// ample reports whether the page cache has plenty of room that is worth its use, and has not been found slow.
func (c *chooser) ample(now time.Time) bool {
	c.look(now)
	return !c.unknown && !now.Before(c.retryAt) && c.now.Free >= plenty && c.gains()
}

// soon reports whether a direct write would finish in less time than a slow one takes.
func (c *chooser) soon(n int) bool {
	ahead := float64(c.now.Flush) + float64(c.under[past]+1)*float64(n)
	return ahead <= c.steady*slowWrite.Seconds()
}

// start reports whether to start writeback of n bytes that were written to the cache.
func (c *chooser) start(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.spill || c.now.Flush >= feed || !c.late() {
		return false
	}
	c.now.Flush += int64(n)
	return true
}

// late reports whether so much of the page cache is dirty that the device is to be kept busy: always if
// files are synced at the end.
func (c *chooser) late() bool {
	return c.synced || c.now.Free < farFrom && !c.now.Group || c.now.Pending >= min(lateFrom, (c.now.Free+c.now.Pending)/2)
}

// advance adds the time since its last call to the figures.
func (c *chooser) advance(now time.Time) {
	passed := now.Sub(c.at)
	if c.at.IsZero() {
		c.since, passed = now, 0
	}
	c.at = now
	c.held += passed * time.Duration(c.under[past])
	if c.under[past] > 0 {
		c.busy += passed
	}
	if c.under[past]+c.under[through] == 0 && passed >= longPause {
		c.idle += passed
	}
}

// restart resets the figures.
func (c *chooser) restart(now time.Time) {
	c.since, c.held, c.busy, c.idle, c.waited = now, 0, 0, 0, false
	c.moved, c.pending = [2]int64{}, c.now.Pending
}

// evaluate decides again once it has enough data, for a single stream or for several.
func (c *chooser) evaluate(now time.Time, single bool) {
	took := now.Sub(c.since)
	if c.first.stage != compared {
		c.compare(now, took)
		return
	}
	if c.settling {
		if c.spill && c.under[past] == 0 || took >= evaluateEvery && (!c.spill || took >= judgeAgain) {
			c.settling = false
			c.restart(now)
		}
		return
	}
	if c.spill {
		if took >= judgeEvery || (c.accepted == 1 || c.seen == 0) && took >= judgeAgain || took >= evaluateEvery && c.hopeless(took) {
			c.judge(now, took)
			c.restart(now)
		}
		return
	}
	if took < evaluateEvery {
		return
	}
	slow := c.slow(took, single)
	c.learn(c.moved[past], took, slow)
	if slow && c.known() && float64(c.seenSlow) >= slowShare*float64(c.seen) && c.retry(now) {
		if c.look(now); !c.unknown && c.now.Free >= leastRoom && (single || c.gains()) {
			c.switchTo(now, true)
		}
	}
	c.restart(now)
}

// gains reports whether the room of a control group is worth its use: the device must need leastGain for as
// many bytes. Its rate is known after a few pulses.
func (c *chooser) gains() bool {
	return !c.now.Group || c.seen >= longEnough && float64(c.now.Free) >= c.steady*leastGain.Seconds()
}

// slow reports whether direct writes waited for the device.
func (c *chooser) slow(took time.Duration, single bool) bool {
	busy, queue := c.busy.Seconds()/took.Seconds(), c.held.Seconds()/took.Seconds()
	each := c.held // time per largeWrite bytes; if nothing finished, the writes in flight count
	if c.moved[past] > largeWrite {
		each = time.Duration(float64(c.held) / (float64(c.moved[past]) / largeWrite))
	}
	if single {
		return busy >= singleShare
	}
	return busy >= busyShare && queue >= queued && each >= slowWrite
}

// learn updates the rates that direct writes reached. It uses the mean, because throttled devices may
// pass a tenth of a second's data at once and then nothing.
func (c *chooser) learn(bytes int64, took time.Duration, slow bool) {
	c.seenBytes, c.seen = c.seenBytes+float64(bytes), c.seen+took
	if slow {
		c.slowBytes, c.seenSlow = c.slowBytes+float64(bytes), c.seenSlow+took
		c.steady = c.slowBytes / c.seenSlow.Seconds()
	}
	if c.seen > 2*longEnough {
		keep := float64(2*longEnough) / float64(c.seen)
		c.seenBytes, c.slowBytes = c.seenBytes*keep, c.slowBytes*keep
		c.seenSlow = time.Duration(keep * float64(c.seenSlow))
		c.seen = 2 * longEnough
	}
	if c.device = c.seenBytes / c.seen.Seconds(); c.seen < longEnough/2 { // perhaps one such moment
		c.device = c.steady
	}
}

// retry reports whether to try the page cache. It returns false for a while after the cache was no
// faster, unless the device proves to be slower than assumed then.
func (c *chooser) retry(now time.Time) bool {
	return !now.Before(c.retryAt) || c.seen >= longEnough && c.cache >= worthwhile*c.device
}

// judge leaves the page cache unless it was worthwhile.
func (c *chooser) judge(now time.Time, took time.Duration) {
	c.look(now)
	moved, behind := c.moved[past]+c.moved[through], c.now.Pending-c.pending
	rate := float64(moved) / took.Seconds()
	latest := rate
	if c.accepted > 0 { // smooth out short peaks
		rate = (rate + c.cache) / 2
	}
	c.cache = rate
	if c.busy.Seconds() >= busyShare*took.Seconds() && c.moved[past] > c.moved[through] {
		c.learn(c.moved[past], took, true)
	}
	least := worthwhile
	if c.now.Group {
		least = nearly
	}
	switch {
	case c.idle > took/2: // nothing arrives
		c.leave(now, 0)
	case c.waited: // a direct write would wait, too
		c.accept()
	case c.accepted > 0 && (!c.now.Group || c.accepted >= groupStays) && c.keepsUp(moved, behind):
		c.forget()
		c.leave(now, 0)
	case c.now.Flush >= flushing: // likewise
		c.accept()
	case rate < least*c.device && c.now.Free > leastRoom:
		c.leave(now, 0)
		c.refuse(now)
	default:
		c.accept()
		if c.seen == 0 && c.first.tryAgain(now, latest) {
			c.compareOnce(latest)
		}
	}
}

// keepsUp reports whether the device writes the cache about as fast as it is filled, although it has
// room for more. Then the device may be faster than the cache, which only direct writes can tell.
func (c *chooser) keepsUp(moved, behind int64) bool {
	if c.moved[through] <= c.moved[past] {
		return false
	}
	return c.now.Pending < keptUp || c.now.Free > leastRoom && float64(moved) < worthwhile*float64(moved-behind)
}

// forget drops what was measured of the device.
func (c *chooser) forget() { c.seen, c.seenBytes, c.seenSlow, c.slowBytes = 0, 0, 0, 0 }

// hopeless reports early that the page cache is far slower than the device: after judgeSoon, or sooner with
// one file, whose cached writes wait for each other. With several, nothing is proved if writes waited for
// direct ones.
func (c *chooser) hopeless(took time.Duration) bool {
	device := c.device
	if c.seen == 0 { // it was only tried
		device = c.first.device
	}
	rate := float64(c.moved[past]+c.moved[through]) / took.Seconds()
	switch {
	case c.accepted > 0 || c.waited:
		return false
	case c.one && !c.now.Group: // whose first pages take the longest
		return took >= 2*evaluateEvery && rate < tooSlow*device
	}
	return took >= judgeSoon && (c.one || c.busy <= took/5) && c.moved[through] >= keptUp && rate < tooSlow*device
}

func (c *chooser) accept() {
	if c.accepted++; c.accepted > 2 {
		c.wait = backoff
	}
}

// refuse does not try the page cache for the back-off, and then measures it anew.
func (c *chooser) refuse(now time.Time) {
	c.retryAt = now.Add(c.wait)
	c.wait = min(2*c.wait, mostBackoff)
}

// leave returns to direct writes for at least that time.
func (c *chooser) leave(now time.Time, atLeast time.Duration) {
	c.switchTo(now, false)
	c.retryAt = now.Add(atLeast)
}

// switchTo changes the mode and resets the figures.
func (c *chooser) switchTo(now time.Time, spill bool) {
	c.changes++
	c.spill, c.accepted = spill, 0
	c.settling = !spill || c.one && c.under[past] > 0
	c.restart(now)
}

// look reads the room unless the known figures are recent.
func (c *chooser) look(now time.Time) {
	every := roomEvery
	if !c.late() && !(c.now.Group && c.spill) {
		every = rarely
	}
	if !c.readAt.IsZero() && now.Sub(c.readAt) < every {
		return
	}
	room, err := c.room()
	c.now, c.unknown, c.readAt = room, err != nil, now
}

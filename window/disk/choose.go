package disk

import (
	"sync"
	"time"

	"github.com/stager-dev/stager/window/disk/memory"
)

// How a chooser evaluates a device.
const (
	// evaluateEvery is how long direct writes are watched before it is decided whether they
	// wait for the device, and judgeEvery how long the page cache must prove to be faster.
	evaluateEvery = 15 * time.Millisecond
	judgeEvery    = 250 * time.Millisecond
	// A device is slow when direct writes are nearly always under way, several wait, and
	// each largeWrite takes longer than slowWrite. A single stream cannot do anything else while
	// it waits for the device.
	busyShare   = 0.85
	queued      = 1.5
	slowWrite   = time.Millisecond
	singleShare = 0.1
	largeWrite  = 512 << 10
	// several streams have enough to do while some wait for the device.
	several = 4
	// worthwhile is by how much the page cache must be faster than the device.
	worthwhile = 1.05
	// leastRoom is the room for which it is worth to begin with the page cache.
	leastRoom = 32 << 20
	// feed is how much of what goes to the page cache is being written to the device at once,
	// so that the device is never idle and nobody waits long behind that. More than flushing
	// is what the kernel writes while it empties the cache; a direct write waits behind it.
	feed     = 16 << 20
	flushing = 64 << 20
	// longEnough is how long a device is measured before its rate is reliable.
	longEnough = 150 * time.Millisecond
	// longPause is a time without any write that is not a stream's own.
	longPause = 50 * time.Millisecond
	// keptUp is how little is pending when the device keeps up with what arrives.
	keptUp = 32 << 20
	// roomEvery is how old the kernel's figures may be, and roomWait how long a write waits
	// for room before it goes to the device anyway.
	roomEvery = 10 * time.Millisecond
	roomWait  = 500 * time.Millisecond
	// After the page cache was no faster it is not tried for backoff, twice as long each time.
	backoff     = 2 * time.Second
	mostBackoff = time.Minute
)

// chooser decides for each large write to one device whether it goes past the page cache.
//
// It starts with direct writes: they cost the least where the device is faster than what
// arrives. Once they queue at the device, what it cannot take at once goes to the page cache
// ("spilling"), as far as that has room, and the device gets as much of that as it can write.
// Where a direct write would be done soon it stays one. A file that is written by several
// streams at once goes to the cache as a whole, because the file system has its direct and
// its cached writes wait for each other.
type chooser struct {
	room func() (memory.Room, error)
	// starting is held by the one goroutine that has the kernel begin to write.
	starting sync.Mutex

	mu      sync.Mutex // guards all below
	spill   bool
	changes int64   // of the way, to and fro
	cached  int64   // bytes that went to the page cache
	device  float64 // bytes per second that direct writes reached when they queued
	cache   float64 // and that all writes reached, with the page cache
	retryAt time.Time
	wait    time.Duration // the next back-off
	files   int           // that are open
	// While the cache is full the writes of shared files are direct. The room is not looked at
	// for each of them, so that a file does not change its way for the little that comes.
	fullTill time.Time

	seen      time.Duration // in which device was measured, of late
	seenBytes float64

	under    [2]int // writes under way, by way
	at       time.Time
	since    time.Time // of the figures below
	held     time.Duration
	busy     time.Duration // with a direct write under way
	idle     time.Duration // without any write, in pauses of longPause at least
	moved    [2]int64      // bytes, by way
	waited   bool          // for room
	readAt   time.Time     // when the room was read
	now      memory.Room
	unknown  bool
	accepted int // judgements in a row that kept to the cache
}

// way is how a write gets to the device.
type way int

const (
	past    way = iota // the page cache
	through            // the page cache
)

func newChooser(room func() (memory.Room, error)) *chooser {
	return &chooser{room: room, wait: backoff}
}

// open counts a file that is opened (1) or closed (-1). Each is written by one stream at least.
func (c *chooser) open(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files += n
}

// begin returns the way of a write of n bytes, which may wait for room. Its file is shared
// when several streams write it. The caller calls end after the write.
func (c *chooser) begin(n int, shared bool) way {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := past
	var until time.Time
	for {
		now := time.Now()
		c.advance(now)
		c.evaluate(now, c.files <= 1 && !shared)
		if !c.spill {
			break
		}
		c.look(now)
		if c.unknown {
			c.leave(now, backoff)
			break
		}
		backlog := c.now.Flush >= flushing
		if !backlog && !shared && c.files >= several && c.soon(n) {
			break
		}
		if now.Before(c.fullTill) {
			break
		}
		if c.now.Free >= int64(n) {
			c.now.Free -= int64(n)
			w = through
			break
		}
		if !backlog { // little room will come soon
			if shared {
				c.fullTill = now.Add(judgeEvery)
			}
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
	c.under[w]++
	return w
}

// end counts a write.
func (c *chooser) end(w way, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(time.Now())
	c.under[w]--
	c.moved[w] += int64(n)
	if w == through {
		c.cached += int64(n)
	}
}

// soon reports whether a direct write would be done in the time that a slow one takes.
func (c *chooser) soon(n int) bool {
	ahead := float64(c.now.Flush) + float64(c.under[past]+1)*float64(n)
	return ahead <= c.device*slowWrite.Seconds()
}

// start reports whether the device is to begin to write n bytes that went to the cache.
func (c *chooser) start(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now.Flush >= feed {
		return false
	}
	c.now.Flush += int64(n)
	return true
}

// advance adds the time since the last call to the figures.
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

// restart begins new figures.
func (c *chooser) restart(now time.Time) {
	c.since, c.held, c.busy, c.idle, c.waited = now, 0, 0, 0, false
	c.moved = [2]int64{}
}

// evaluate decides anew when enough was seen, of a single stream or of several.
func (c *chooser) evaluate(now time.Time, single bool) {
	took := now.Sub(c.since)
	if c.spill {
		if took >= judgeEvery {
			c.judge(now, took)
			c.restart(now)
		}
		return
	}
	if took < evaluateEvery {
		return
	}
	if c.slow(took, single) {
		c.learn(c.moved[past], took)
		if c.look(now); c.retry(now) && !c.unknown && c.now.Free >= leastRoom {
			c.spill, c.accepted = true, 0
			c.changes++
		}
	}
	c.restart(now)
}

// slow reports whether direct writes waited for the device.
func (c *chooser) slow(took time.Duration, single bool) bool {
	busy, queue := c.busy.Seconds()/took.Seconds(), c.held.Seconds()/took.Seconds()
	each := c.held // what largeWrite bytes take; what is under way counts if nothing ended
	if c.moved[past] > largeWrite {
		each = time.Duration(float64(c.held) / (float64(c.moved[past]) / largeWrite))
	}
	if single {
		return busy >= singleShare
	}
	return busy >= busyShare && queue >= queued && each >= slowWrite
}

// learn takes what direct writes reached while they queued. Devices that are held at a rate
// may let a tenth of a second pass at once and then nothing, so that the mean counts.
func (c *chooser) learn(bytes int64, took time.Duration) {
	c.seenBytes, c.seen = c.seenBytes+float64(bytes), c.seen+took
	if c.seen > 2*longEnough {
		c.seenBytes *= float64(2*longEnough) / float64(c.seen)
		c.seen = 2 * longEnough
	}
	c.device = c.seenBytes / c.seen.Seconds()
}

// retry reports whether the page cache may be tried: not for a while after it was no faster,
// unless the device turns out to be slower than it was thought to be then.
func (c *chooser) retry(now time.Time) bool {
	return !now.Before(c.retryAt) || c.seen >= longEnough && c.cache >= worthwhile*c.device
}

// judge keeps to the page cache only if it was worth it.
func (c *chooser) judge(now time.Time, took time.Duration) {
	rate := float64(c.moved[past]+c.moved[through]) / took.Seconds()
	if c.accepted > 0 { // one moment does not count for much
		rate = (rate + c.cache) / 2
	}
	c.cache = rate
	if c.busy.Seconds() >= busyShare*took.Seconds() && c.moved[past] > c.moved[through] {
		c.learn(c.moved[past], took)
	}
	switch {
	case c.idle > took/2: // nothing arrives
		c.leave(now, 0)
	case c.waited, c.now.Flush >= flushing: // a direct write would wait, too
		c.accept()
	case rate < worthwhile*c.device && c.now.Free > leastRoom:
		c.leave(now, c.wait)
		c.wait = min(2*c.wait, mostBackoff)
	case c.moved[through] > c.moved[past] && c.now.Pending < keptUp && c.accepted > 0:
		c.leave(now, 0) // the device keeps up: measure it anew
	default:
		c.accept()
	}
}

func (c *chooser) accept() {
	if c.accepted++; c.accepted > 2 {
		c.wait = backoff
	}
}

// leave goes back to direct writes, for so long at least.
func (c *chooser) leave(now time.Time, atLeast time.Duration) {
	c.changes++
	c.spill, c.retryAt = false, now.Add(atLeast)
	c.restart(now)
}

// look reads the room if what is known of it is old.
func (c *chooser) look(now time.Time) {
	if !c.readAt.IsZero() && now.Sub(c.readAt) < roomEvery {
		return
	}
	room, err := c.room()
	c.now, c.unknown, c.readAt = room, err != nil, now
}

// Ways reports how many bytes of files that WriteAuto chooses for went past the page cache
// and through it, and how often it changed between the two on this device, by this process.
func (f *Dir) Ways() (direct, cached, changes int64) {
	c := f.writing.chooser
	if c == nil {
		return 0, 0, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return f.writing.moved[past].Load(), f.writing.moved[through].Load(), c.changes
}

// choosers are those of this process, by device: what one file is told of a device counts
// for all.
var choosers = struct {
	mu sync.Mutex
	of map[uint64]*chooser
}{of: make(map[uint64]*chooser)}

// chooserOf returns the chooser of a device.
func chooserOf(device uint64) *chooser {
	choosers.mu.Lock()
	defer choosers.mu.Unlock()
	c := choosers.of[device]
	if c == nil {
		c = newChooser(memory.NewReader().Read)
		choosers.of[device] = c
	}
	return c
}

package disk

import "time"

// How a chooser begins. The first writes go to the page cache for tryCacheFor, and then to the device for
// tryPastFor, which is shorter, because a device may stall. If the device seems to be faster, but not
// clearly, that is repeated, tries times at most. Then the page cache takes all further writes unless the
// device was faster times as fast. The device is tried again if it may have begun slowly, because it was not
// even slower times as fast, at intervals that double, or if the page cache became slower than the device was.
const (
	tryCacheFor = 30 * time.Millisecond
	tryPastFor  = 8 * time.Millisecond
	settleFor   = 10 * time.Millisecond // for writes in flight to the page cache, at most
	tries       = 3
	faster      = 1.15
	clearly     = 1.4
	slower      = 0.5
)

// comparison is the first measurement of the two ways. A device that passes the first tenth of a second's
// data at once seems faster than it is, but never slower. So if the page cache is about as fast as the
// device seems to be, it is the right way for the first bytes, whatever the device is like.
type comparison struct {
	stage    stage
	bytes    [2]float64       // by way
	took     [2]time.Duration // by way
	tries    int
	device   float64       // bytes per second of the latest trial
	again    bool          // the device may have begun slowly
	pause    time.Duration // until it is tried again
	ended    time.Time     // when the latest trial ended
	settling bool          // the trial of the device has yet to begin: writes to the page cache are in flight
}

// stage is a part of a comparison.
type stage int

const (
	unused   stage = iota // nothing was written yet
	tryCache              // writes go through the page cache
	tryPast               // writes bypass it
	compared
)

// beginComparison starts to compare, unless memory is limited, or files are synced at the end: the device
// then limits the whole transfer, and its burst is not lost if the first bytes are written directly.
func (c *chooser) beginComparison(now time.Time) {
	c.first.stage = compared
	if !c.synced && c.ample(now) && !c.now.Group {
		c.first.stage, c.spill = tryCache, true
		c.restart(now)
	}
}

// compareOnce tries the device once more while the page cache is used, at a rate in bytes per second.
func (c *chooser) compareOnce(rate float64) {
	c.first = comparison{stage: tryPast, settling: true, bytes: [2]float64{through: rate}, took: [2]time.Duration{through: time.Second}, tries: tries, pause: c.first.pause}
	c.spill = false
}

// compare ends a stage of the comparison if it was long enough.
func (c *chooser) compare(now time.Time, took time.Duration) {
	f, w, least := &c.first, through, tryCacheFor
	if f.stage == tryPast {
		if w, least = past, tryPastFor; f.settling && c.now.Free >= leastRoom {
			if f.settling = c.under[through] > 0 && took < settleFor; !f.settling {
				c.restart(now)
			}
			return
		}
	}
	if took < least && c.now.Free >= leastRoom {
		return
	}
	f.bytes[w] += float64(c.moved[w])
	f.took[w] += took
	if w == through {
		f.stage, f.settling, c.spill = tryPast, true, false
	} else {
		f.tries++
		f.ended = now
		if f.stage, c.spill = c.decide(); !c.spill && f.tries > tries {
			c.refuse(now)
		}
	}
	c.restart(now)
}

// tryAgain reports whether to try the device again while the page cache is used, at a rate in bytes per second.
func (f *comparison) tryAgain(now time.Time, rate float64) bool {
	return f.again && now.Sub(f.ended) >= f.pause || rate < f.device
}

// decide returns what follows a trial of the device.
func (c *chooser) decide() (next stage, spill bool) {
	f := &c.first
	// Writes in flight count by half: if they wait for long, others went to the page cache.
	direct := (f.bytes[past] + float64(c.under[past])*largeWrite/2) / f.took[past].Seconds()
	ratio := direct / (f.bytes[through] / f.took[through].Seconds())
	f.device, f.again = direct, ratio < slower
	f.pause = max(judgeAgain, 2*f.pause)
	switch {
	case c.now.Free < leastRoom:
		return compared, false
	case f.tries > tries: // a single try of a device that was slower
		return compared, ratio < clearly
	case f.tries < tries && ratio > 1 && ratio < clearly:
		return tryCache, true
	}
	return compared, ratio < faster
}

package window

import "time"

// diskPause keeps fetches from starting while the disk is full. The pause grows with each fetch that
// finds the disk full, until one succeeds. The window's mutex guards it.
type diskPause struct {
	until time.Time
	tries int // fetches in a row that found the disk full
}

// over reports whether fetches may start.
func (p *diskPause) over(now time.Time) bool { return !now.Before(p.until) }

// full records that a fetch found the disk full.
func (p *diskPause) full(now time.Time) {
	p.until = now.Add(pause(p.tries))
	p.tries++
}

// scarce records that too little of the disk is free.
func (p *diskPause) scarce(now time.Time) { p.until = now.Add(lookEvery) }

// fetched records that a fetch succeeded.
func (p *diskPause) fetched() { p.tries = 0 }

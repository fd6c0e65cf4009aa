package window

import "time"

// ends holds the epochs that have ended and whose END markers are to be written. An epoch stays
// until take returns it, and returns by retry if its marker could not be written. The window's mutex
// guards it.
type ends struct {
	epochs    []int
	notBefore time.Time
}

func (s *ends) add(epoch int) { s.epochs = append(s.epochs, epoch) }

// take removes the epochs and returns them, unless the last attempt failed a moment ago.
func (s *ends) take(now time.Time, alarm func(time.Time)) (epochs []int) {
	if now.Before(s.notBefore) {
		alarm(s.notBefore)
		return nil
	}
	epochs, s.epochs = s.epochs, nil
	return epochs
}

// retry puts an epoch back whose marker could not be written.
func (s *ends) retry(now time.Time, epoch int) {
	s.add(epoch)
	s.notBefore = now.Add(lookEvery)
}

// empty reports whether all markers are written or being written.
func (s *ends) empty() bool { return len(s.epochs) == 0 }

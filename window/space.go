package window

import "time"

// space counts what the window takes of its size: the room of the entries in each state, and the
// window's own files. used is the sum of the totals, and peak the maximum of used and own together.
// unallocated is the room of those reserved entries whose space the disk's free space does not
// reflect yet. All numbers are bytes. The window's mutex guards it.
type space struct {
	totals      map[State]*total // of the states that take space
	used        int64
	unallocated int64
	own         int64     // of the window's own files
	ownMost     int64     // upper limit for own until the next measurement
	ownAt       time.Time // of the next measurement
	peak        int64
	meters      meters
}

// total is the space that the positions of one state take.
type total struct {
	items int
	bytes int64
}

func newSpace(m meters) space {
	s := space{totals: map[State]*total{}, meters: m}
	for _, state := range holding {
		s.totals[state] = &total{}
	}
	return s
}

// add adds to the sums of one state.
func (s *space) add(state State, items int, bytes int64) {
	t := s.totals[state]
	if t == nil {
		return // this state takes no space
	}
	t.items += items
	t.bytes += bytes
	s.used += bytes
	if s.taken() > s.peak {
		s.peak = s.taken()
		s.meters.peak.Set(float64(s.peak))
	}
	s.meters.state(state, *t)
}

// move counts an entry's change of state.
func (s *space) move(e *entry, to State) {
	s.add(e.state, -1, -e.room())
	s.add(to, 1, e.room())
}

// resize corrects the size of a file that takes other space than planned.
func (s *space) resize(e *entry, size, beside int64) {
	s.add(e.state, 0, size+beside-e.room())
	e.size, e.beside = size, beside
}

// reserve counts the room of a new reserved entry as unallocated.
func (s *space) reserve(e *entry) { s.unallocated += e.room() }

// allocate records whether the disk's free space reflects an entry.
func (s *space) allocate(e *entry, is bool) {
	if e.allocated == is {
		return
	}
	e.allocated = is
	if is {
		s.unallocated -= e.room()
	} else {
		s.unallocated += e.room()
	}
}

// discard counts an entry without its file, which was discarded before it was complete.
func (s *space) discard(e *entry) {
	s.unallocated -= e.room()
	s.resize(e, 0, 0)
}

// measured records the size of the window's own files, and an upper limit for it until the next
// measurement.
func (s *space) measured(own, most int64) {
	s.own, s.ownMost = own, most
	s.peak = max(s.peak, s.taken())
}

// taken returns the bytes that the window takes of its size.
func (s *space) taken() int64 { return s.used + s.own }

// of returns the sums of one state that takes space.
func (s *space) of(state State) total { return *s.totals[state] }

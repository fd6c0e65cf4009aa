package window

import "slices"

// entries are the positions that take space, and the files of earlier plans that do. An entry is
// active, by its position, until the position is finished or is to be fetched again. Its file, if
// it is published, is left until it is removed. The window's mutex guards it.
type entries struct {
	active map[seq]*entry    // unfinished positions
	left   map[string]*entry // by file name
}

func newEntries() entries {
	return entries{active: map[seq]*entry{}, left: map[string]*entry{}}
}

// found adds a recovered entry.
func (s *entries) found(e *entry) {
	if e.item == orphan {
		s.left[e.name] = e
		return
	}
	s.active[e.seq] = e
}

// forget removes an entry from the positions; its file may still take space.
func (s *entries) forget(e *entry) {
	if s.active[e.seq] != e {
		return
	}
	delete(s.active, e.seq)
	if e.published {
		s.left[e.name] = e
	}
}

// restore undoes forget.
func (s *entries) restore(e *entry) {
	s.gone(e)
	s.active[e.seq] = e
}

// gone forgets a removed file.
func (s *entries) gone(e *entry) {
	if s.left[e.name] == e {
		delete(s.left, e.name)
	}
}

// named returns the entry whose file has, or had, a name in ready/; nil if there is none.
func (s *entries) named(file string) *entry {
	a, _, _ := parseName(file)
	if e := s.active[a]; e != nil && e.name == file && (e.published || e.showing) {
		return e
	}
	return s.left[file]
}

// has reports whether a position is active.
func (s *entries) has(a seq) bool { return s.active[a] != nil }

// leased reports whether a reader, or a group of readers, holds a position.
func (s *entries) leased(a seq) bool { e := s.active[a]; return e != nil && e.state == Leased }

// droppable returns the Ready entries after a position, last first, without those that are being
// published.
func (s *entries) droppable(a seq) (after []*entry) {
	for at, e := range s.active {
		if e.state == Ready && !e.showing && a.before(at) {
			after = append(after, e)
		}
	}
	slices.SortFunc(after, func(a, b *entry) int { return b.compare(a.seq) })
	return after
}

// ahead returns the number of entries before a position that no reader holds.
func (s *entries) ahead(a seq) (n int) {
	for at, e := range s.active {
		if at.before(a) && e.state != Leased {
			n++
		}
	}
	return n
}

// lowestReady returns the lowest position before a that is Ready, or a.
func (s *entries) lowestReady(a seq) seq {
	for at, e := range s.active {
		if e.state == Ready && at.before(a) {
			a = at
		}
	}
	return a
}

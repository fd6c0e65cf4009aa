package window

import "slices"

// entries are the positions that take space, and the files of earlier plans that do. An entry is
// active, by its position, until the position is finished or is to be fetched again; it is found by
// its file's name and inode until the file is removed. The window's mutex guards it.
type entries struct {
	active map[seq]*entry    // unfinished positions
	files  map[string]*entry // by file name
	inodes map[uint64]*entry // published entries, by inode
}

func newEntries() entries {
	return entries{active: map[seq]*entry{}, files: map[string]*entry{}, inodes: map[uint64]*entry{}}
}

// found adds a recovered entry. Files of earlier plans do not replace those of this one.
func (s *entries) found(e *entry) {
	if e.item != orphan {
		s.active[e.seq] = e
	}
	if s.files[e.name] == nil || e.item != orphan {
		s.files[e.name] = e
	}
	if e.ino != 0 {
		s.inodes[e.ino] = e
	}
}

// forget removes an entry from the positions; its file may still take space.
func (s *entries) forget(e *entry) {
	if s.active[e.seq] == e {
		delete(s.active, e.seq)
	}
}

// gone deletes all references to a removed file.
func (s *entries) gone(e *entry) {
	if s.files[e.name] == e {
		delete(s.files, e.name)
	}
	if s.inodes[e.ino] == e {
		delete(s.inodes, e.ino)
	}
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

package window

import (
	"slices"
	"testing"
)

func TestEntriesAreFoundUntilTheirFileIsGone(t *testing.T) {
	s := newEntries()
	e := &entry{seq: seq{0, 3}, name: "a", ino: 7, state: Leased}
	s.found(e)
	if !s.has(e.seq) || !s.leased(e.seq) || s.files["a"] != e || s.inodes[7] != e {
		t.Error("an entry that was found is missing")
	}
	old := &entry{item: orphan, seq: seq{0, 3}, name: "a", ino: 8}
	s.found(old)
	if s.active[e.seq] != e || s.files["a"] != e || s.inodes[8] != old {
		t.Error("a file of an earlier plan replaced an entry of this one")
	}
	s.forget(old)
	s.gone(old)
	if s.active[e.seq] != e || s.files["a"] != e || s.inodes[8] != nil {
		t.Error("removing a file of an earlier plan removed an entry of this one")
	}
	s.forget(e)
	if s.has(e.seq) || s.files["a"] != e {
		t.Error("a forgotten entry is active, or its file is not found")
	}
	s.gone(e)
	if len(s.files)+len(s.inodes) > 0 {
		t.Error("a removed file is still found")
	}
}

func TestEntriesThatCanBeDroppedAreLastFirst(t *testing.T) {
	s := newEntries()
	e := entriesAt(Ready, 0, 1, 2, 3, 4)
	for _, e := range e {
		s.active[e.seq] = e
	}
	e[2].state = Leased
	e[3].showing = true
	if got := s.droppable(seq{0, 0}); !slices.Equal(got, []*entry{e[4], e[1]}) {
		t.Errorf("got %d entries, want the last and the second", len(got))
	}
	if got := s.ahead(seq{0, 4}); got != 3 {
		t.Errorf("got %d entries before the last that no reader holds, want 3", got)
	}
	e[0].state = Fetching
	if got := s.lowestReady(seq{1, 0}); got != (seq{0, 1}) {
		t.Errorf("got %v as the lowest Ready position, want 1", got)
	}
	if got := s.lowestReady(seq{0, 1}); got != (seq{0, 1}) {
		t.Errorf("got %v as the lowest Ready position, want the limit itself", got)
	}
}

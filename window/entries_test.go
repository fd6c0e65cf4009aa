package window

import (
	"slices"
	"testing"
)

func TestEntriesAreFoundUntilTheirFileIsGone(t *testing.T) {
	s := newEntries()
	a := seq{0, 3}
	name := a.fileName("a")
	e := &entry{seq: a, name: name, state: Leased, published: true}
	s.found(e)
	if !s.has(a) || !s.leased(a) || s.named(name) != e {
		t.Error("an entry that was found is missing")
	}
	old := &entry{item: orphan, name: name, published: true}
	s.found(old)
	if s.active[a] != e || s.named(name) != e {
		t.Error("a file of an earlier plan replaced an entry of this one")
	}
	s.forget(old)
	s.gone(old)
	if s.active[a] != e || s.named(name) != e {
		t.Error("removing a file of an earlier plan removed an entry of this one")
	}
	s.forget(e)
	if s.has(a) || s.named(name) != e {
		t.Error("a forgotten entry is active, or its file is not found")
	}
	s.restore(e)
	if s.active[a] != e || len(s.left) > 0 {
		t.Error("an entry was not restored")
	}
	s.forget(e)
	again := &entry{seq: a, name: name, state: Reserved}
	s.active[a] = again
	if s.named(name) != e {
		t.Error("the file in ready/ is not that of the entry that is to be removed, while its position is fetched again")
	}
	again.showing = true
	if s.named(name) != again {
		t.Error("an entry that is being published is not found")
	}
	s.gone(e)
	s.forget(again)
	if len(s.left)+len(s.active) > 0 {
		t.Error("a removed file, or an entry that never had one, is still found")
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

package window

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// State is the state of a position of the plan.
type State string

// The states, in order; the package comment describes them.
const (
	Planned     State = "planned"
	Reserved    State = "reserved"
	Fetching    State = "fetching"
	Verifying   State = "verifying"
	Ready       State = "ready"
	Leased      State = "leased"
	Acked       State = "acked"
	Zombie      State = "zombie"
	Freed       State = "freed"
	Quarantined State = "quarantined"
	Skipped     State = "skipped"
)

// moves lists the allowed transitions.
var moves = map[State][]State{
	Planned:  {Reserved, Ready, Leased, Acked, Zombie}, // all but Reserved: found on disk
	Reserved: {Fetching},
	// Back to Reserved for another attempt, with the same bytes reserved.
	Fetching:  {Verifying, Reserved, Quarantined},
	Verifying: {Ready, Reserved, Quarantined},
	// To Acked by the file protocol, or when a rolling window replaces it. To Zombie when an
	// earlier position needs its space; the position is then fetched again.
	Ready:       {Leased, Acked, Zombie},
	Leased:      {Ready, Acked, Quarantined},
	Acked:       {Zombie, Freed},
	Zombie:      {Freed, Ready}, // to Ready when a reader acquired a file that was to be removed
	Quarantined: {Skipped},
}

// holding lists the states in which a position takes space.
var holding = []State{Reserved, Fetching, Verifying, Ready, Leased, Acked, Zombie, Quarantined}

// entry is a position that takes space, or a file of an earlier plan. A window may have a million: what
// only few of them need at once is not in it.
type entry struct {
	seq
	item int    // index of its item; orphan for a file without a position
	name string // name of its file
	size int64  // bytes of its file, or of the files of its tree
	// beside is the number of other bytes charged to the budget.
	beside  int64
	bytes   int64  // Size of its item: a tree may have taken less
	samples int    // of its item
	digest  string // of its item, or else of its file once that is whole
	state   State

	fetching *fetching // until Ready

	tree      bool // its item is a directory
	summed    bool // digest is that of its item
	allocated bool // the disk's free space already reflects it
	// From Ready on.
	showing   bool      // it is being published
	published bool      // it has, or had, a name in ready/
	planned   bool      // its position is to be fetched again: removing this file is not an acknowledgement
	leaving   bool      // its removal has not been tried yet
	ino       uint64    // 0 until it is published
	moved     *place    // where a reader moved it; nil if in ready/
	mark      disk.Mark // identifies its file
	lease     *lease    // while Leased
	carryOver *entry    // the position of the next epoch that reuses its file
}

// place returns where a reader moved the file; empty if in ready/.
func (e *entry) place() place {
	if e.moved == nil {
		return place{}
	}
	return *e.moved
}

// move records where the file is.
func (e *entry) move(to place) {
	e.moved = nil
	if to != (place{}) {
		e.moved = &to
	}
}

// shares returns the shares of the groups, by group; nil unless they share the entry.
func (e *entry) shares() []share {
	if e.lease == nil {
		return nil
	}
	return e.lease.shares
}

// fetching is what an entry has from Reserved to Verifying.
type fetching struct {
	of        Item
	notBefore time.Time                              // no attempt before
	tries     int                                    // failed fetches in a row
	corrupt   int                                    // how many of them had a wrong checksum
	at        time.Time                              // start of the last fetch
	in        interface{ Began() (time.Time, bool) } // nil unless it is being fetched
}

// newEntry returns a position of an item, whose file has this name.
func newEntry(a seq, index int, item Item, name string) *entry {
	return &entry{
		seq: a, item: index, name: name, size: item.Size, beside: item.Beside, bytes: item.Size, samples: item.Samples,
		digest: item.Digest, summed: item.Digest != "", tree: item.Tree, state: Planned,
	}
}

// itemName returns the name of the entry's item.
func (e *entry) itemName() string {
	_, name, _ := parseName(e.name)
	return name
}

// fetched records that the file is whole.
func (e *entry) fetched(digest string) {
	e.fetching = nil
	e.sum(digest)
}

// sum records the digest of the file, unless that of the item is known.
func (e *entry) sum(digest string) {
	if !e.summed {
		e.digest = digest
	}
}

// orphan is the item of a file that belongs to no position.
const orphan = -1

// moveLocked makes a transition. No other function changes a state. It panics on one that moves
// does not list.
func (w *Window) moveLocked(e *entry, to State, why string) {
	if !slices.Contains(moves[e.state], to) {
		panic(fmt.Sprintf("window: %s cannot move from %s to %s", e.name, e.state, to))
	}
	from := e.state
	w.space.move(e, to)
	e.state = to
	level := slog.LevelDebug
	if to == Quarantined || to == Skipped {
		level = slog.LevelWarn
	}
	if !w.log.Enabled(background, level) {
		return // this is the hot path
	}
	w.log.Log(background, level, "moved", "file", e.name, "from", string(from), "to", string(to), "why", why)
}

// room returns the number of bytes that an entry takes of the budget.
func (e *entry) room() int64 { return e.size + e.beside }

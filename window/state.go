package window

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// State is where a position of the plan stands.
type State string

// The states, in the order of a life; the package comment tells it.
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

// moves has every move there is.
var moves = map[State][]State{
	Planned:  {Reserved, Ready, Leased, Acked, Zombie}, // all but the first: found on disk
	Reserved: {Fetching},
	// Back to Reserved: to try again, with the same bytes reserved.
	Fetching:  {Verifying, Reserved, Quarantined},
	Verifying: {Ready, Reserved, Quarantined},
	// To Acked by a verb on the file, or replaced; to Zombie when its room is needed
	// for what comes earlier, and the position is planned anew.
	Ready:       {Leased, Acked, Zombie},
	Leased:      {Ready, Acked, Quarantined},
	Acked:       {Zombie, Freed},
	Zombie:      {Freed, Ready}, // to Ready when a reader took what was to go
	Quarantined: {Skipped},
}

// holding are the states in which a position takes room.
var holding = []State{Reserved, Fetching, Verifying, Ready, Leased, Acked, Zombie, Quarantined}

// entry is a position that takes room, or a file of an earlier plan.
type entry struct {
	seq
	item int    // index in Config.Items; orphan for a file of no position
	name string // its file's
	size int64  // of its file, or of the files of its tree
	// beside is what else it takes of the budget.
	beside int64
	state  State

	// Reserved to Verifying.
	tries     int       // fetches in a row that ended in an error
	corrupt   int       // of these, wrong checksums
	notBefore time.Time // of the next try, or the next look at a zombie
	allocated bool      // the disk's free space has it already

	fetchAt time.Time                              // when the last fetch began
	in      interface{ Began() (time.Time, bool) } // while it is fetched

	// Ready and after.
	showing   bool      // it is being given its name
	published bool      // it has, or had, a name in ready/
	planned   bool      // its position is planned anew: this file is not an acknowledgement
	ino       uint64    // 0 until it is shown
	at        place     // where a reader put it, if not in ready/
	leaving   bool      // its burial has not been tried yet
	since     time.Time // when it became ready
	digest    string
	mark      disk.Mark // of its file
	lease     *lease    // while Leased
	shares    []share   // by group, while Leased and broadcast
	carryOver *entry    // the position that its file is about to be kept for
}

// orphan is the item of a file that belongs to no position.
const orphan = -1

// moveLocked is the one function that changes a state.
func (w *Window) moveLocked(e *entry, to State, why string) {
	if !slices.Contains(moves[e.state], to) {
		panic(fmt.Sprintf("window: %s cannot move from %s to %s", e.name, e.state, to))
	}
	from := e.state
	w.countLocked(from, -1, -e.room())
	e.state = to
	w.countLocked(to, 1, e.room())
	level := slog.LevelDebug
	if to == Quarantined || to == Skipped {
		level = slog.LevelWarn
	}
	if !w.log.Enabled(background, level) {
		return // this is the hot path
	}
	w.log.Log(background, level, "moved", "file", e.name, "from", string(from), "to", string(to), "why", why)
}

// total is what the positions of one state take.
type total struct {
	items int
	bytes int64
}

// countLocked keeps the sums by state, which the budget and the metrics see.
func (w *Window) countLocked(s State, items int, bytes int64) {
	t := w.totals[s]
	if t == nil {
		return // a state that takes no room
	}
	t.items += items
	t.bytes += bytes
	w.used += bytes
	if w.used+w.own > w.peak {
		w.peak = w.used + w.own
		w.metrics.peak.Set(float64(w.peak))
	}
	w.metrics.state(s, *t)
}

// resizeLocked is for files that turn out to take another room than planned.
func (w *Window) resizeLocked(e *entry, size, beside int64) {
	w.countLocked(e.state, 0, size+beside-e.room())
	e.size, e.beside = size, beside
}

// room is what an entry takes of the budget.
func (e *entry) room() int64 { return e.size + e.beside }

package window

import (
	"slices"
	"time"
)

// firstAlone is how long the first fetch has the network to itself. All readers wait for it, and n
// concurrent fetches would make it n times slower.
const firstAlone = 2 * time.Second

// fetches holds the entries that are to be fetched. An entry waits, Reserved, until start returns it;
// then it runs until ended. Entries start in the order of the plan, as far as their pauses after
// failures allow. The window's mutex guards it.
type fetches struct {
	waiting    []*entry // ascending
	running    map[*entry]bool
	aloneUntil time.Time // end of the first fetch's exclusive time; zero before that fetch
	brought    bool      // a fetch has ended, or files were recovered
}

// add inserts a Reserved entry.
func (f *fetches) add(e *entry) {
	at, _ := slices.BinarySearchFunc(f.waiting, e, func(a, b *entry) int { return a.compare(b.seq) })
	f.waiting = slices.Insert(f.waiting, at, e)
}

// start returns the entries to fetch now, of which at most most run at once. From now on they run.
func (f *fetches) start(now time.Time, most int, alarm func(time.Time)) (start []*entry) {
	f.waiting = slices.DeleteFunc(f.waiting, func(e *entry) bool {
		most := most
		if !f.brought && now.Before(f.aloneUntil) {
			most = 1
			alarm(f.aloneUntil)
		}
		switch {
		case len(f.running) >= most:
			return false
		case now.Before(e.fetching.notBefore):
			alarm(e.fetching.notBefore)
			return false
		}
		f.running[e] = true
		if f.aloneUntil.IsZero() {
			f.aloneUntil = now.Add(firstAlone)
		}
		start = append(start, e)
		return true
	})
	return start
}

// ended removes an entry whose fetch has ended, with or without success.
func (f *fetches) ended(e *entry) {
	delete(f.running, e)
	f.brought = true
}

// first returns the lowest entry of an epoch that is being fetched, or nil.
func (f *fetches) first(epoch int) (first *entry) {
	for e := range f.running {
		if e.epoch == epoch && (first == nil || e.before(first.seq)) {
			first = e
		}
	}
	return first
}

// waitsFor reports whether the next entry to fetch belongs to an epoch.
func (f *fetches) waitsFor(epoch int) bool { return len(f.waiting) > 0 && f.waiting[0].epoch == epoch }

// count returns the number of entries that wait or run.
func (f *fetches) count() int { return len(f.waiting) + len(f.running) }

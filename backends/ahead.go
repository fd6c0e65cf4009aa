package backends

import (
	"context"
	"errors"
	"sort"
	"strings"
	"sync"
	"time"
)

// Pages of a listing follow each other: only a page says where the next one begins. With 100 ms for a
// page of 1,000 keys, ten million keys take 17 minutes. A server that can begin a listing behind any
// key can list several ranges of keys at once, if it is known where they should begin.
//
// An aheadListing guesses that, see split.go. The names of directories, which a request with a delimiter
// returns, are not enough: 200 pages of 100 ms of numbers or hashes in one directory take 20 s with them,
// and 2 s with guesses. Guesses are not enough either: directories with words as names, of five pages each,
// take 19 s with guesses alone, and 3 s with both. BenchmarkListAhead has the figures.
//
// No guess can make the listing wrong, or fail. A range begins behind a key that need not exist, and ends
// with the first key behind the start of the next range. It is joined to the next one only if both have
// found that key there: the one that reached it, and the one that began with it. Otherwise the next range
// is dropped, and this one lists its keys as well, as the listing of one page after the other does.
//
// Ranges that have no keys are requests for nothing, so their number is limited by that of pages with
// keys. A listing begins without ranges. The first pages show whether more requests are worth while.
const (
	aheadAfter = 2                     // pages that are listed before others are requested ahead
	slowPage   = 20 * time.Millisecond // the least time for a page that makes this worth while
	mostRanges = 16                    // that are listed at once, or held
	leastRange = 2
	rangePages = 4  // that a range is to have
	heldPages  = 10 // of a range, in memory
	freeMisses = 8  // ranges without keys; and one more for every missShare pages
	missShare  = 8
)

// aheadListing is a listing in progress.
type aheadListing struct {
	store  *Store
	lister PageLister
	prefix string
	ctx    context.Context // of the requests of ranges, which end with the listing
	tell   func(Skipped)   // of the caller; may be nil
	cancel context.CancelFunc
	work   sync.WaitGroup

	// Of the caller's goroutine.
	began, asked time.Time     // when the listing began, and when the page that arrives was requested
	waited       time.Duration // for pages

	mu      sync.Mutex // guards all below and the fields of ranges
	changed *sync.Cond
	ended   bool
	ranges  []*keyRange // in the order of their keys; the first one is being yielded
	ahead   bool        // ranges are requested ahead
	limit   int         // of ranges; it grows as they have keys, up to highest
	highest int
	refused int64 // the last paging.throttled for which highest was lowered
	pages   int   // with keys
	misses  int   // ranges without keys, and other requests that found none
	splitter
}

// keyRange is a range of a listing: the keys behind start up to the start of the next range. The first
// range of a listing is listed by the caller's goroutine and holds no pages; each other one has its own.
type keyRange struct {
	start string
	again bool // it continues another one at a position, so start is a key
	at    position
	stop  context.CancelFunc

	arriving []Object  // the page that arrives; of the goroutine
	skipped  []Skipped // of that page
	pages    []listPage
	first    string // the first key behind start; "" if none has arrived
	last     string // the last key of the range that has arrived; start if none
	join     string // the first key behind the range; "" if unknown
	done     bool   // join is known, or err, or the listing ends with this range
	err      error
	had      int  // pages with keys of the range
	seen     span // of the page that arrives
	origin
}

type listPage struct {
	objects packed
	skipped []Skipped
}

// listAhead calls yield for the objects below prefix until it returns false.
func (s *Store) listAhead(ctx context.Context, prefix string, yield func(Object) bool) error {
	pages, ok := s.backend.(PageLister)
	if !ok {
		return s.scan(skippedBelow(ctx, s.prefix), prefix, position{}, yield)
	}
	l := &aheadListing{store: s, lister: pages, prefix: prefix, limit: leastRange, highest: mostRanges, began: time.Now(), splitter: newSplitter(prefix)}
	l.tell, _ = ctx.Value(skippedKey{}).(func(Skipped))
	ctx = skippedBelow(ctx, s.prefix)
	l.asked = l.began
	l.changed = sync.NewCond(&l.mu)
	l.ctx, l.cancel = context.WithCancel(ctx)
	defer l.close()
	lead := &keyRange{stop: func() {}}
	l.ranges = []*keyRange{lead}
	joined, at := false, position{}
	err := s.scan(context.WithValue(ctx, nextPageKey{}, l.leadPage), prefix, at, func(obj Object) bool {
		if lead.seen.n == 0 {
			l.waited += time.Since(l.asked)
		}
		if joined = l.reached(obj.Key); joined {
			return false
		}
		lead.seen.add(obj.Key)
		at = at.next(obj.Key)
		return yield(obj)
	})
	if err == nil && joined {
		err = l.drain(at, yield)
	}
	return err
}

// close ends the requests ahead.
func (l *aheadListing) close() {
	l.mu.Lock()
	l.ended = true
	l.changed.Broadcast()
	l.mu.Unlock()
	l.cancel()
	l.work.Wait()
}

// leadPage is NextPage of the first range.
func (l *aheadListing) leadPage() bool {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	lead := l.ranges[0]
	l.pages++
	if lead.seen.n > 0 {
		lead.last = lead.seen.last
		l.noteLocked(lead)
	}
	lead.seen = span{}
	if !l.ahead && l.pages >= aheadAfter {
		// A caller that needs longer than the pages gains nothing.
		l.ahead = l.waited/time.Duration(l.pages) >= slowPage && l.waited >= now.Sub(l.began)/4
	}
	l.planLocked()
	l.asked = now
	return true
}

// reached reports whether key, which the first range yields next, is the first key of the next range,
// which then is the first one.
func (l *aheadListing) reached(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.ranges) > 1 && key > l.ranges[1].start {
		l.ranges[0].join = key // no other range begins before it
		if l.joinLocked() {
			return true
		}
		l.ranges[0].join = ""
	}
	return false
}

// joinLocked waits for the first key of the second range. If it is the one with which the first range ends,
// the second becomes the first one; otherwise it is dropped, and the first lists its keys, too. So a range
// that fails before it has a key ends no listing.
func (l *aheadListing) joinLocked() bool {
	next := l.ranges[1]
	for next.first == "" && !next.done {
		l.changed.Wait()
	}
	if next.first != l.ranges[0].join || errors.Is(next.err, errNotNeeded) {
		l.dropLocked()
		return false
	}
	l.ranges = l.ranges[1:]
	l.planLocked()
	return true
}

// errNotNeeded is the error of a range that is listed no further although it does not end there.
var errNotNeeded = errors.New("the range is not needed")

// dropLocked drops the second range.
func (l *aheadListing) dropLocked() {
	l.ranges[1].stop()
	l.ranges = append(l.ranges[:1:1], l.ranges[2:]...)
	l.misses++
	l.planLocked()
}

// drain yields the pages of the ranges behind a position.
func (l *aheadListing) drain(at position, yield func(Object) bool) error {
	for {
		page, more, err := l.next(at)
		if err != nil || !more {
			return err
		}
		for _, s := range page.skipped {
			l.tell(s)
		}
		for obj := range page.objects.all() {
			if obj.Key <= at.last {
				return named(Errorf(Corrupt, "list", l.prefix, "%q is listed after %q, so keys may be missing", obj.Key, at.last), "list", l.store.name, l.prefix)
			}
			at = at.next(obj.Key)
			if !yield(obj) {
				return nil
			}
		}
	}
}

// next returns the next page, which is behind a position.
func (l *aheadListing) next(at position) (page listPage, more bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		r := l.ranges[0]
		switch {
		case len(r.pages) > 0:
			page, r.pages = r.pages[0], r.pages[1:]
			l.changed.Broadcast()
			l.planLocked()
			return page, true, nil
		case r.err != nil:
			return page, false, r.err
		case r.join != "":
			if !l.joinLocked() {
				l.restartLocked(at)
			}
		case r.done:
			return page, false, nil
		default:
			l.changed.Wait()
		}
	}
}

// restartLocked replaces the first range by one that begins behind a position.
func (l *aheadListing) restartLocked(at position) {
	l.ranges[0].stop()
	l.ranges = l.ranges[1:]
	l.insertLocked(0, &keyRange{start: at.last, at: at, again: true})
}

// insertLocked starts a range at an index of ranges.
func (l *aheadListing) insertLocked(at int, r *keyRange) {
	ctx, stop := context.WithCancel(l.ctx)
	r.stop, r.last = stop, r.start
	l.ranges = append(l.ranges, nil)
	copy(l.ranges[at+1:], l.ranges[at:])
	l.ranges[at] = r
	l.work.Go(func() { l.list(ctx, r) })
}

// planLocked starts ranges as long as they are worth while.
func (l *aheadListing) planLocked() {
	paging := l.store.paging
	if at := paging.throttled.Load(); time.Duration(at-l.refused) > afterRefusal {
		l.refused = at // once for all requests in flight
		l.highest = max(l.highest/2, leastRange)
		l.limit = min(l.limit, l.highest)
	}
	if paging.fromStart.Load() || time.Since(time.Unix(0, paging.throttled.Load())) < afterRefusal {
		return
	}
	for l.ahead && !l.ended && len(l.ranges) < min(l.limit, l.store.Workers()) && l.misses <= freeMisses+l.pages/missShare {
		at, r := l.splitLocked()
		if r == nil {
			return
		}
		l.insertLocked(at, r)
	}
}

// list lists a range.
func (l *aheadListing) list(ctx context.Context, r *keyRange) {
	defer r.stop()
	ctx = context.WithValue(ctx, nextPageKey{}, func() bool { return l.took(r) })
	if l.tell != nil {
		ctx = WithSkipped(ctx, func(s Skipped) {
			s.Key = strings.TrimPrefix(s.Key, l.store.prefix)
			r.skipped = append(r.skipped, s)
		})
	}
	each := func(obj Object) bool {
		r.arriving = append(r.arriving, obj)
		r.seen.add(obj.Key)
		return true
	}
	var err error
	if r.again {
		err = l.store.scan(ctx, l.prefix, r.at, each)
	} else {
		err = l.store.scanBehind(ctx, l.lister, l.prefix, r.start, each)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.takeLocked(r)
	if r.join == "" && r.err == nil {
		r.err = err
	}
	r.done = true
	switch {
	case l.ended:
	case r.err != nil && r.first == "":
		l.limit = 0 // for good: the server may refuse such keys
	case r.err == nil && r.had == 0:
		l.misses++
	}
	l.changed.Broadcast()
	l.planLocked()
}

// took is NextPage of a range. It waits while the range holds enough pages.
func (l *aheadListing) took(r *keyRange) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.takeLocked(r)
	l.changed.Broadcast()
	l.planLocked()
	for len(r.pages) >= heldPages && !l.goneLocked(r) {
		l.changed.Wait()
	}
	if r.join == "" && l.goneLocked(r) {
		r.err = errNotNeeded
	}
	return r.join == "" && r.err == nil
}

// goneLocked reports whether a range is needed no longer. If the server cannot begin a listing behind a
// key, only the first one is.
func (l *aheadListing) goneLocked(r *keyRange) bool {
	if l.ended || l.store.paging.fromStart.Load() && l.ranges[0] != r {
		return true
	}
	for _, is := range l.ranges {
		if is == r {
			return false
		}
	}
	return true
}

// takeLocked ends the page of a range that arrives.
func (l *aheadListing) takeLocked(r *keyRange) {
	objects, skipped := r.arriving, r.skipped
	defer func() {
		clear(r.arriving) // of strings
		r.arriving, r.skipped, r.seen = r.arriving[:0], nil, span{}
	}()
	if len(objects) == 0 && len(skipped) == 0 {
		return
	}
	if r.first == "" && len(objects) > 0 {
		r.first = objects[0].Key
	}
	if n := len(objects); n > 0 {
		if end := l.endLocked(r); end != "" && objects[n-1].Key > end {
			i := sort.Search(n, func(i int) bool { return objects[i].Key > end })
			r.join, objects = objects[i].Key, objects[:i]
		}
	}
	if len(objects) > 0 {
		if l.pages++; r.had == 0 {
			l.limit = min(2*l.limit, l.highest)
		}
		r.had++
		r.last = objects[len(objects)-1].Key
		l.noteLocked(r)
	}
	kept := skipped[:0] // the ranges beside this one report what lies in them
	for _, s := range skipped {
		if (r.again || r.first != "" && s.Key > r.first) && (r.join == "" || s.Key < r.join) {
			kept = append(kept, s)
		}
	}
	if len(objects)+len(kept) > 0 {
		r.pages = append(r.pages, listPage{pack(objects), kept})
	}
}

// endLocked returns the start of the next range; "" if there is none.
func (l *aheadListing) endLocked(r *keyRange) string {
	for i, is := range l.ranges {
		if is == r && i+1 < len(l.ranges) {
			return l.ranges[i+1].start
		}
	}
	return ""
}

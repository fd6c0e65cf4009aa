package backends

import (
	"context"
	"math"
	"sort"
	"strings"
	"unicode/utf8"
)

// A splitter chooses where ranges of a listing begin. It continues the names of the pages that have
// arrived, as numbers, see guess.go, and it requests the names of the directories beside that of a page.
type splitter struct {
	top    string // the directory that contains all keys
	shapes map[int]*shape
	levels map[string]*level // by directory
	seen   map[string]int    // pages of a directory that have arrived
	most   map[int]int       // the highest of seen, by depth
	begun  map[string]int    // ranges that were guessed in a directory
	each   map[int]float64   // pages of a directory, of the last one that was yielded, by depth

	passing string  // the directory that is being yielded
	passed  float64 // its pages
}

func newSplitter(prefix string) splitter {
	return splitter{
		top: directoryOf(prefix), shapes: make(map[int]*shape), levels: make(map[string]*level),
		seen: make(map[string]int), most: make(map[int]int), begun: make(map[string]int), each: make(map[int]float64),
	}
}

// level is what is known of the directories in a directory.
type level struct {
	names   []string // ascending; each a whole prefix
	after   string   // the last one; those that are not known come behind it
	loading bool
	end     bool // there are no more
}

// origin is how a range was chosen, and where its last page lies.
type origin struct {
	again bool    // it continues a range, so no other one reports what lies before its first key
	dir   string  // the directory of the last page
	from  string  // the first key of the page in dir
	to    string  // the last key of the page; "" before the first page
	share float64 // how much of the page lies between them
}

// noteLocked notes the page of a range that has arrived.
func (l *aheadListing) noteLocked(r *keyRange) {
	all, to := r.seen.samples, r.seen.last
	dir, n := directoryOf(to), 0
	for {
		n = len(all) - sort.Search(len(all), func(i int) bool { return all[i] >= dir })
		if len(dir) <= len(l.top) || 4*n >= len(all) {
			break
		}
		dir = directoryOf(dir[:len(dir)-1])
	}
	at := depth(dir)
	l.seen[dir]++
	l.most[at] = max(l.most[at], l.seen[dir])
	r.dir = dir
	r.from, r.to, r.share = to, to, 1
	if n > 0 {
		r.from, r.share = all[len(all)-n], float64(n)/float64(len(all))
	}
	if l.shapes[at] == nil {
		l.shapes[at] = new(shape)
	}
	for _, key := range all[len(all)-n:] {
		l.shapes[at].add(key[len(dir):])
	}
	l.shapes[at].add(to[len(dir):])
}

// splitLocked returns a new range and its index; nil if none is worth while now. Those that are needed
// first come first.
func (l *aheadListing) splitLocked() (at int, r *keyRange) {
	for i, of := range l.ranges {
		if of.done || of.join != "" || of.to == "" {
			continue
		}
		// Several ranges may be guessed from one page.
		at := i + 1
		for at < len(l.ranges) && l.ranges[at].to == "" && l.ranges[at].first == "" && !l.ranges[at].done && strings.HasPrefix(l.ranges[at].start, of.dir) {
			at++
		}
		if r = l.withinLocked(of, at); r != nil {
			return at, r
		}
	}
	return l.besideLocked()
}

// withinLocked returns a range at an index that begins in the directory of the last page of another one.
func (l *aheadListing) withinLocked(of *keyRange, at int) *keyRange {
	step, ok := l.shapes[depth(of.dir)].step(of.dir, of.from, of.to, of.share)
	if !ok {
		return nil
	}
	guesses := 1 // from this page
	for l.ranges[at-guesses] != of {
		guesses++
	}
	before, end := max(of.to, l.ranges[at-1].last), ""
	if at < len(l.ranges) {
		end = l.ranges[at].start
	}
	far := float64(guesses * rangePages)
	switch {
	case end != "" && strings.HasPrefix(end, of.dir):
		if step.distance(end) < far+rangePages/2 {
			return nil
		}
	case len(of.dir) > len(l.top) && !l.longLocked(of.dir):
		return nil
	}
	start := step.ahead(far)
	if start <= before || !strings.HasPrefix(start, of.dir) || end != "" && start >= end || !utf8.ValidString(start) {
		return nil
	}
	l.begun[of.dir]++
	return &keyRange{start: start}
}

// longLocked reports whether another range may begin in a directory: whether it is as long, if it has as many
// pages as others, or as those that have arrived.
func (l *aheadListing) longLocked(dir string) bool {
	begun := l.begun[dir] + 1
	if each := l.each[depth(dir)]; each > 0 {
		return each >= 2*rangePages && float64(begun*rangePages) <= each
	}
	return l.seen[dir] >= 2 && begun <= l.seen[dir]
}

// passedLocked notes a page that is yielded, by some of its keys: how many pages the directories have.
func (l *aheadListing) passedLocked(keys []string) {
	dirs, last := 0, ""
	for _, key := range keys {
		if dir := directoryOf(key); dirs == 0 || dir != last {
			dirs++
			last = dir
		}
	}
	switch first := directoryOf(keys[0]); {
	case dirs > 2:
		l.each[depth(last)] = 1 / float64(dirs)
	case first == l.passing && dirs == 1:
		l.passed++
		return
	case first == l.passing:
		l.each[depth(first)] = l.passed + 0.5
	case l.passed > 0:
		l.each[depth(l.passing)] = l.passed
	}
	l.passing, l.passed = last, 1/float64(dirs)
}

// besideLocked returns a range that begins with a directory beside that of a page, and its index.
func (l *aheadListing) besideLocked() (at int, r *keyRange) {
	dir := ""
	for i, of := range l.ranges {
		if of.to != "" {
			dir = of.dir
		}
		if of.done || of.join != "" || dir == "" {
			continue
		}
		end := ""
		if i+1 < len(l.ranges) {
			end = l.ranges[i+1].start
		}
		if start := l.nameLocked(dir, max(of.last, of.to), end); start != "" {
			return i + 1, &keyRange{start: start}
		}
	}
	return 0, nil
}

// nameLocked returns where a range may begin that is between two keys, with a directory beside dir or beside
// one that contains it; "" if there is none, or none is known yet. An end of "" is that of the listing.
func (l *aheadListing) nameLocked(dir, from, end string) string {
	for len(dir) > len(l.top) {
		parent := directoryOf(dir[:len(dir)-1])
		v := l.levels[parent]
		if v == nil {
			v = new(level)
			l.levels[parent] = v
			l.loadLocked(v, parent, dir)
		}
		first, past := sort.SearchStrings(v.names, max(dir, from)), len(v.names)
		for first < past && (v.names[first] <= dir || startOf(v.names[first]) <= from) {
			first++
		}
		group := l.groupLocked(dir)
		if end != "" {
			past = sort.SearchStrings(v.names, end)
			if past-first < 2*group-1 || startOf(v.names[first+group-1]) >= end {
				return ""
			}
		} else if !v.end && !v.loading && past-first <= 4*group {
			l.loadLocked(v, parent, max(dir, v.after))
		}
		if first < past {
			return startOf(v.names[min(first+group, past)-1])
		}
		if !v.end {
			return ""
		}
		dir = parent
	}
	return ""
}

// startOf returns a key behind which all keys of a directory are.
func startOf(dir string) string { return strings.TrimSuffix(dir, "/") }

// groupLocked returns how many directories like dir a range is made of, so that it has some pages.
func (l *aheadListing) groupLocked(dir string) int {
	each := l.each[depth(dir)]
	if each == 0 {
		each = float64(max(l.most[depth(dir)], 1))
	}
	return max(1, int(math.Ceil(rangePages/max(each, 0.01))))
}

// loadLocked requests the directories of a directory that come behind one of them.
func (l *aheadListing) loadLocked(v *level, parent, after string) {
	pages, ok := l.store.backend.(PageLister)
	if !ok {
		v.end = true
		return
	}
	v.loading = true
	in := max(parent, l.prefix) // one begins with the other
	l.work.Go(func() {
		var names []string
		err := l.store.retry(l.ctx, "list", parent, func(ctx context.Context, _ *stallDetector) (err error) {
			names, err = pages.Directories(ctx, l.store.prefix+in, l.store.prefix+after)
			return err
		})
		l.mu.Lock()
		defer l.mu.Unlock()
		v.names = v.names[sort.SearchStrings(v.names, l.ranges[0].start):] // the others are passed
		known := len(v.names)
		for _, name := range names {
			if name = strings.TrimPrefix(name, l.store.prefix); name > after && strings.HasPrefix(name, in) {
				v.names = append(v.names, name)
			}
		}
		v.loading = false
		if v.end = err != nil || len(v.names) == known; v.end {
			l.misses++
		} else {
			v.after = v.names[len(v.names)-1]
		}
		l.planLocked()
	})
}

// depth returns the number of directories that contain a directory.
func depth(dir string) int { return strings.Count(dir, "/") }

// directoryOf returns a key up to its last slash.
func directoryOf(key string) string { return key[:strings.LastIndexByte(key, '/')+1] }

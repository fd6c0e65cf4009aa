package backends

import (
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
	levels map[string]*level  // by directory
	seen   map[string]float64 // pages of a directory that have arrived
	most   map[int]float64    // the highest of seen, by depth
	begun  map[string]float64 // ranges that were guessed in a directory
}

func newSplitter(prefix string) splitter {
	return splitter{
		top: directoryOf(prefix), shapes: make(map[int]*shape), levels: make(map[string]*level),
		seen: make(map[string]float64), most: make(map[int]float64), begun: make(map[string]float64),
	}
}

// level is what is known of the directories in a directory.
type level struct {
	names   []string // ascending; each a whole prefix
	after   string   // the last one; those that are not known come behind it
	loading bool
	end     bool // there are no more
}

// origin is where the last page of a range lies.
type origin struct {
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
	r.dir, r.from, r.to, r.share = dir, to, to, float64(max(n, 1))/float64(len(all))
	if n > 0 {
		r.from = all[len(all)-n]
	}
	l.seen[dir] += r.share
	l.most[at] = max(l.most[at], l.seen[dir])
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
		if r = l.withinLocked(i, at); r != nil {
			return at, r
		}
	}
	return l.besideLocked()
}

// withinLocked returns a range that begins in the directory of the last page of the ith range, and is to have
// an index.
func (l *aheadListing) withinLocked(i, at int) *keyRange {
	of := l.ranges[i]
	step, ok := l.shapes[depth(of.dir)].step(of.dir, of.from, of.to, of.share)
	if !ok {
		return nil
	}
	before, end := max(of.to, l.ranges[at-1].last), ""
	if at < len(l.ranges) {
		end = l.ranges[at].start
	}
	far := float64((at - i) * rangePages)
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
// pages as the longest one beside it, or, in the longest one, as have arrived.
func (l *aheadListing) longLocked(dir string) bool {
	seen, most, begun := l.seen[dir], l.most[depth(dir)], l.begun[dir]+1
	if seen < most {
		return most >= 2*rangePages && begun*rangePages <= most
	}
	return seen >= 2 && begun <= seen
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
	return int(math.Ceil(rangePages / max(l.most[depth(dir)], 0.01)))
}

// loadLocked requests the directories of a directory that come behind one of them.
func (l *aheadListing) loadLocked(v *level, parent, after string) {
	v.loading = true
	in := max(parent, l.prefix) // one begins with the other
	l.work.Go(func() {
		var names []string
		var more bool
		err := l.store.retry(l.ctx, "list", parent, func(a *attempt) (err error) {
			names, more, err = l.lister.Directories(a, l.store.prefix+in, l.store.prefix+after)
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
		if len(v.names) == known {
			l.misses++
		} else {
			v.after = v.names[len(v.names)-1]
		}
		v.end = !more || err != nil || len(v.names) == known
		l.planLocked()
	})
}

// depth returns the number of directories that contain a directory.
func depth(dir string) int { return strings.Count(dir, "/") }

// directoryOf returns a key up to its last slash.
func directoryOf(key string) string { return key[:strings.LastIndexByte(key, '/')+1] }

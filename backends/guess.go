package backends

import (
	"math"
	"math/bits"
	"slices"
	"strings"
)

// A span is what is kept of the keys of a page.
type span struct {
	n       int
	every   int      // the distance of the samples
	samples []string // ascending; the first key is one
	last    string
}

const mostSamples = 64

func (s *span) add(key string) {
	if s.every == 0 {
		s.every = 1
	}
	if s.n%s.every == 0 {
		if len(s.samples) == mostSamples {
			for i := range mostSamples / 2 {
				s.samples[i] = s.samples[2*i]
			}
			s.samples = s.samples[:mostSamples/2]
			s.every *= 2
		}
		if s.n%s.every == 0 {
			s.samples = append(s.samples, key)
		}
	}
	s.n++
	s.last = key
}

// A shape is which bytes names have at which position. With it a name is a number between 0 and 1, and
// a number is the beginning of a name: positions are digits, and the bytes that may be there are their
// values. So "img_000999.jpg" is followed by "img_001".
type shape struct {
	seen [64]bytesSeen // by position
	may  [64]string    // what may be at a position, ascending; "": not computed
}

// bytesSeen is a set of bytes.
type bytesSeen [256 / 64]uint64

func (s *shape) add(name string) {
	for i := range min(len(name), len(s.seen)) {
		c := name[i]
		if set := &s.seen[i][c/64]; *set&(1<<(c%64)) == 0 {
			*set |= 1 << (c % 64)
			clear(s.may[:])
		}
	}
}

// Sets of bytes that are completed if some of them were seen.
const (
	digits    = "0123456789"
	lowerHex  = "abcdef"
	upperHex  = "ABCDEF"
	lowercase = "abcdefghijklmnopqrstuvwxyz"
	uppercase = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// alphabet returns which bytes may be at a position; "" if no name is as long. The bytes that were seen are
// completed up to the first position that varies. Those behind it have had all their values: the days of a
// month end with 31.
func (s *shape) alphabet(at int) string {
	if at >= len(s.seen) {
		return ""
	}
	if s.may[at] != "" {
		return s.may[at]
	}
	set := s.seen[at]
	if !s.varies(at) {
		complete(&set)
	}
	var all strings.Builder
	for c := range 256 {
		if set[c/64]&(1<<(c%64)) != 0 {
			all.WriteByte(byte(c))
		}
	}
	s.may[at] = all.String()
	return s.may[at]
}

// varies reports whether names differ before a position.
func (s *shape) varies(at int) bool {
	return slices.ContainsFunc(s.seen[:at], func(set bytesSeen) bool {
		n := 0
		for _, word := range set {
			n += bits.OnesCount64(word)
		}
		return n > 2
	})
}

// complete adds the digits and letters that may follow those of a set.
func complete(set *bytesSeen) {
	hasDigits := set.count(digits) > 0
	for _, letters := range []struct{ all, hex string }{{lowercase, lowerHex}, {uppercase, upperHex}} {
		n := set.count(letters.all)
		switch {
		case n > 0 && n == set.count(letters.hex) && hasDigits:
			set.add(letters.hex)
		case n > 3:
			set.add(letters.all)
		}
	}
	if hasDigits {
		set.add(digits)
	}
}

// count returns how many of some bytes are in the set.
func (set *bytesSeen) count(of string) (n int) {
	for _, c := range []byte(of) {
		if set[c/64]&(1<<(c%64)) != 0 {
			n++
		}
	}
	return n
}

func (set *bytesSeen) add(all string) {
	for _, c := range []byte(all) {
		set[c/64] |= 1 << (c % 64)
	}
}

// number returns the number of a name from a position on.
func (s *shape) number(name string, at int) (v float64) {
	unit := 1.0
	for ; at < len(name) && unit > 1e-17; at++ {
		all := s.alphabet(at)
		if all == "" {
			break
		}
		less := 0
		for less < len(all)-1 && all[less] < name[at] {
			less++
		}
		unit /= float64(len(all))
		v += float64(less) * unit
	}
	return v
}

// A step is how far a page goes.
type step struct {
	*shape
	dir  string
	head string  // what the keys begin with, with dir
	to   float64 // the last key of the page, without head
	page float64
}

// carries is how many positions before the first difference of two names may change, too.
const carries = 4

// step returns the step of a page that has share of its keys from one key to another one, both in dir.
func (s *shape) step(dir, from, to string, share float64) (is step, ok bool) {
	a, b := from[len(dir):], to[len(dir):]
	at := 0
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	at = max(0, at-carries)
	is = step{shape: s, dir: dir, head: to[:len(dir)+at], to: s.number(b, at)}
	is.page = (is.to - s.number(a, at)) / share
	return is, is.page > 0
}

// ahead returns a key some pages behind the last one; "" if the names end before it.
func (is step) ahead(pages float64) string {
	v := is.to + pages*is.page
	if v >= 1 || math.IsNaN(v) {
		return ""
	}
	key := []byte(is.head)
	for unit := 1.0; unit > is.page/16; {
		all := is.alphabet(len(key) - len(is.dir))
		if all == "" {
			break
		}
		v *= float64(len(all))
		digit := min(int(v), len(all)-1)
		v -= float64(digit)
		key = append(key, all[digit])
		unit /= float64(len(all))
	}
	return string(key)
}

// distance returns how many pages a key in dir is behind the last one, as far as the names tell.
func (is step) distance(key string) float64 {
	if !strings.HasPrefix(key, is.head) {
		return math.Inf(1)
	}
	return (is.number(key[len(is.dir):], len(is.head)-len(is.dir)) - is.to) / is.page
}

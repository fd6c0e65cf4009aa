package hdfs

import (
	"slices"
	"strings"

	"github.com/stager-dev/stager/backends"
)

// entry is a file, or a directory, of a page.
type entry struct {
	name   string // of a directory with a slash behind it, which is how its keys go on
	object backends.Object
}

// An order brings the entries of a directory, as the NameNode lists them, into the order
// of the keys. The two differ in two ways:
//
//   - what lies in "a" comes behind "a-b", since "-" stands before "/"; the NameNode
//     lists "a" first
//   - Java's bytes have a sign, so to the NameNode all letters beyond ASCII stand
//     before those within: "aü" before "ab"
//
// An entry is held until none can come that stands before it. Among names in ASCII
// these are few; a directory of other names is held whole.
type order struct{ held []entry }

// add takes the next entry.
func (o *order) add(e entry) {
	i, _ := slices.BinarySearchFunc(o.held, e.name, func(h entry, name string) int { return strings.Compare(h.name, name) })
	o.held = slices.Insert(o.held, i, e)
}

// next is the first entry held, if none can come before it once the NameNode has
// listed the name seen, or has listed all.
func (o *order) next(seen string, all bool) (entry, bool) {
	if len(o.held) == 0 || !all && !settled(o.held[0].name, seen) {
		return entry{}, false
	}
	e := o.held[0]
	o.held[0] = entry{}
	o.held = o.held[1:]
	return e, true
}

// settled tells whether all that the NameNode lists behind seen stands behind name.
func settled(name, seen string) bool {
	if signed(seen, name) < 0 {
		return false
	}
	plain := strings.IndexFunc(name, func(r rune) bool { return r >= 0x80 })
	return plain < 0 || !strings.HasPrefix(seen, name[:plain])
}

// signed compares as the NameNode does.
func signed(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return int(int8(a[i])) - int(int8(b[i]))
		}
	}
	return len(a) - len(b)
}

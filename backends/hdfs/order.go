package hdfs

import (
	"slices"
	"strings"

	"github.com/stager-dev/stager/backends"
)

// entry is a file or directory of a page.
type entry struct {
	name   string // directories end in "/", as their keys continue
	object backends.Object
}

// order sorts the entries of a directory from the order of the NameNode into key order. The two
// differ in two ways:
//
//   - The keys in "a" sort after "a-b", since "-" sorts before "/". The NameNode lists "a" first.
//   - Java bytes are signed, so the NameNode sorts all non-ASCII letters before ASCII: "aü" before
//     "ab".
//
// An entry is held until no earlier entry can follow. For ASCII names few entries are held; a
// directory of other names is held whole.
type order struct{ held []entry }

// add adds the next entry.
func (o *order) add(e entry) {
	i, _ := slices.BinarySearchFunc(o.held, e.name, func(h entry, name string) int { return strings.Compare(h.name, name) })
	o.held = slices.Insert(o.held, i, e)
}

// next returns the first held entry if no earlier one can follow. The NameNode has listed names up
// to seen, or everything if all is true.
func (o *order) next(seen string, all bool) (entry, bool) {
	if len(o.held) == 0 || !all && !settled(o.held[0].name, seen) {
		return entry{}, false
	}
	e := o.held[0]
	o.held[0] = entry{}
	o.held = o.held[1:]
	return e, true
}

// settled reports whether every name that the NameNode lists after seen sorts after name.
func settled(name, seen string) bool {
	if signed(seen, name) < 0 {
		return false
	}
	plain := strings.IndexFunc(name, func(r rune) bool { return r >= 0x80 })
	return plain < 0 || !strings.HasPrefix(seen, name[:plain])
}

// signed compares names in the order of the NameNode.
func signed(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return int(int8(a[i])) - int(int8(b[i]))
		}
	}
	return len(a) - len(b)
}

package plan

import "github.com/stager-dev/stager/backends"

// Objects are the objects of a manifest, by index. There may be millions, so that they need not be
// in memory. An error of At means that an object that was recorded cannot be read again.
type Objects interface {
	Len() int
	At(i int) (backends.Object, error)
}

// Len returns the number of objects.
func (m Manifest) Len() int {
	if m.Objects == nil {
		return 0
	}
	return m.Objects.Len()
}

// List is Objects in memory.
type List []backends.Object

// Len implements [Objects].
func (l List) Len() int { return len(l) }

// At implements [Objects].
func (l List) At(i int) (backends.Object, error) { return l[i], nil }

// joined are the objects of several manifests, one after the other.
type joined []Objects

func (j joined) Len() (n int) {
	for _, part := range j {
		n += part.Len()
	}
	return n
}

func (j joined) At(i int) (backends.Object, error) {
	part := 0
	for ; i >= j[part].Len(); part++ {
		i -= j[part].Len()
	}
	return j[part].At(i)
}

// arranged are some objects in another order.
type arranged struct {
	of Objects
	at []int32 // indexes of of
}

func (a arranged) Len() int { return len(a.at) }

func (a arranged) At(i int) (backends.Object, error) { return a.of.At(int(a.at[i])) }

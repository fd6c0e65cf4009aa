package lossyfs

import (
	"fmt"
	"math/rand/v2"
)

// Loss says what a loss of power takes of what was not synced.
type Loss int

const (
	// Killed keeps everything: the process died, the machine did not.
	Killed Loss = iota
	// All loses everything.
	All
	// Bytes loses the bytes and sizes of files, and keeps names and attributes.
	Bytes
	// Zeros loses the bytes of files and keeps their sizes, names and attributes.
	Zeros
	// Names loses names and keeps bytes.
	Names
	// Torn keeps everything but half of the last write.
	Torn
	// OneFile keeps everything but the bytes of one file.
	OneFile
	// OneDirectory keeps everything but the names in one directory.
	OneDirectory
	// Some loses each change or keeps it, at random.
	Some
	// Losses is how many there are.
	Losses
)

func (l Loss) String() string {
	return [...]string{"killed", "all", "bytes", "zeros", "names", "torn", "one file", "one directory", "some"}[l]
}

// Recording is what programs did to a file system.
type Recording struct {
	// Ordered has names written in the order of their changes, as journals of file systems
	// do: a change is not lost when a later one is kept, synced or not.
	Ordered bool

	base *state
	ops  []op
}

// Len returns how many changes and syncs there are.
func (r *Recording) Len() int { return len(r.ops) }

// Marks returns the marks among the first n changes.
func (r *Recording) Marks(n int) (marks []string) {
	for _, o := range r.ops[:n] {
		if o.what == opMark {
			marks = append(marks, o.note)
		}
	}
	return marks
}

// Changes reports whether the nth change is more than a sync or a mark: the states after the
// others are those of before.
func (r *Recording) Changes(n int) bool { return n > 0 && r.ops[n-1].what < opSync }

// Describe names the nth change for a message.
func (r *Recording) Describe(n int) string {
	if n == 0 {
		return "nothing"
	}
	o := r.ops[n-1]
	return fmt.Sprintf("%d of %d: %s %s", n, len(r.ops), o.what, o.path)
}

// durable returns which of the first n changes were synced.
func (r *Recording) durable(n int) []bool {
	durable := make([]bool, n)
	for i, o := range r.ops[:n] {
		switch o.what {
		case opSync:
			named := make(map[uint64]bool)
			for j := range i {
				if touches(r.ops[j], o.ino) {
					durable[j] = true
					for _, e := range r.ops[j].names {
						named[e.ino] = true
					}
				}
			}
			// Attributes are written before a later name: both go to one journal.
			for j := range i {
				durable[j] = durable[j] || r.ops[j].what == opAttr && named[r.ops[j].ino]
			}
		case opSyncAll:
			for j := range i {
				durable[j] = true
			}
		default:
		}
	}
	return durable
}

// touches reports whether a sync of an inode makes a change durable.
func touches(o op, ino uint64) bool {
	if o.what != opNames {
		return o.ino == ino
	}
	for _, e := range o.names {
		if e.dir == ino {
			return true
		}
	}
	return false
}

// After builds the state that a loss of power after the first n changes leaves.
func (r *Recording) After(n int, loss Loss, seed uint64) *FS {
	s := r.base.clone()
	durable := r.durable(n)
	random := rand.New(rand.NewPCG(seed, uint64(n)))
	last, files, dirs := -1, []uint64(nil), []uint64(nil)
	for i, o := range r.ops[:n] {
		if durable[i] {
			continue
		}
		switch o.what {
		case opWrite:
			last, files = i, append(files, o.ino)
		case opNames:
			dirs = append(dirs, o.names[0].dir)
		default:
		}
	}
	chosen := uint64(0)
	if pick := files; loss == OneFile && len(pick) > 0 {
		chosen = pick[random.IntN(len(pick))]
	} else if pick = dirs; loss == OneDirectory && len(pick) > 0 {
		chosen = pick[random.IntN(len(pick))]
	}
	ordered := r.Ordered && (loss == OneDirectory || loss == Some)
	if ordered {
		r.order(durable, random)
	}
	for i, o := range r.ops[:n] {
		k := kept
		if !durable[i] {
			k = survives(o, loss, i == last, chosen, random)
			if ordered && (o.what == opNames || o.what == opAttr) {
				k = lost
			}
		}
		s.apply(o, k)
	}
	s.flush()
	return newFS(s)
}

// order makes the changes of names durable up to one at random; the rest are lost.
func (r *Recording) order(durable []bool, random *rand.Rand) {
	last := random.IntN(len(durable) + 1)
	for i := range durable {
		if durable[i] && r.ops[i].what == opNames {
			last = max(last, i)
		}
	}
	for i := range durable {
		if i <= last && (r.ops[i].what == opNames || r.ops[i].what == opAttr) {
			durable[i] = true
		}
	}
}

// survives returns how much of a change that was not synced is kept.
func survives(o op, loss Loss, last bool, chosen uint64, random *rand.Rand) keep {
	drop := func(gone bool) keep {
		if gone {
			return lost
		}
		return kept
	}
	switch loss {
	case All:
		return lost
	case Bytes:
		return drop(o.what == opWrite)
	case Zeros:
		if o.what == opWrite {
			return sizeOnly
		}
	case Names:
		return drop(o.what == opNames)
	case Torn:
		if last {
			return half
		}
	case OneFile:
		if o.what == opWrite && o.ino == chosen {
			return []keep{lost, sizeOnly}[random.IntN(2)]
		}
	case OneDirectory:
		return drop(o.what == opNames && touches(o, chosen))
	case Some:
		if o.what == opWrite {
			return []keep{lost, sizeOnly, half, kept}[random.IntN(4)]
		}
		return drop(o.what != opAttr && random.IntN(2) == 0)
	default:
	}
	return kept
}

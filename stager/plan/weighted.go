package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/stager-dev/stager/stager/internal/shuffle"
)

// maxWeight and maxPasses limit an epoch of Weighted to reasonable values.
const (
	maxWeight = 1_000_000
	maxPasses = 1000
)

func (o OrderSpec) within() string { return cmp.Or(o.Within, Shuffle) }

// blend mixes several sources by their weights. An epoch has one pass over the source that is
// largest relative to its weight, so that nothing is omitted. Other sources contribute according to
// their weights: some may need several passes, each with its own order.
//
// Weights apply to samples if the counts of all are known, else to bytes.
//
// Each source is spread evenly over the epoch, with enough jitter to keep two sources from being in
// phase, which would give one node all of one source. At any position, a source's contribution is
// within one of its shards of its share.
type blend struct {
	spec  OrderSpec
	m     Manifest
	units []uint64
}

// units returns the weight of each shard. An empty one counts as well, so that the order advances.
func units(m Manifest) ([]uint64, error) {
	units := make([]uint64, m.Len())
	for i := range units {
		if m.Counts != nil {
			units[i] = uint64(max(m.Counts[i].Samples, 1))
			continue
		}
		obj, err := m.Objects.At(i)
		if err != nil {
			return nil, err
		}
		units[i] = uint64(max(obj.Size, 1))
	}
	return units, nil
}

// sums returns the weight of one pass over each source.
func (b blend) sums() []uint64 {
	sums := make([]uint64, len(b.m.Shares))
	object := 0
	for i, s := range b.m.Shares {
		for range s.Objects {
			sums[i] += b.units[object]
			object++
		}
	}
	return sums
}

// goals returns what each source contributes to an epoch. tooOften is the first source that would
// need more than maxPasses passes, or -1.
func (b blend) goals() (goals []uint64, tooOften int) {
	sums := b.sums()
	most := 0
	for i, s := range b.m.Shares {
		hi, lo := bits.Mul64(sums[i], uint64(b.m.Shares[most].Weight))
		hiMost, loMost := bits.Mul64(sums[most], uint64(s.Weight))
		if hi > hiMost || hi == hiMost && lo > loMost {
			most = i
		}
	}
	goals = make([]uint64, len(sums))
	tooOften = -1
	for i, s := range b.m.Shares {
		hi, lo := bits.Mul64(sums[most], uint64(s.Weight))
		weight := uint64(b.m.Shares[most].Weight)
		if hi >= weight {
			return goals, i // overflow
		}
		var rest uint64
		if goals[i], rest = bits.Div64(hi, lo, weight); rest > 0 {
			goals[i]++
		}
		if tooOften < 0 && sums[i] > 0 && goals[i]/sums[i] > maxPasses {
			tooOften = i
		}
	}
	return goals, tooOften
}

// CheckShares refuses weights that would repeat a small source too often.
func (m Manifest) CheckShares(order OrderSpec) error {
	units, err := units(m)
	if err != nil {
		return err
	}
	if _, i := (blend{order, m, units}).goals(); i >= 0 {
		return &EnvError{fmt.Errorf("%s is too small for its weight of %d: it would repeat more than %d times in each epoch; lower its weight, or raise the others'",
			m.Shares[i].Source, m.Shares[i].Weight, maxPasses)}
	}
	return nil
}

func (b blend) order(epoch int) []int32 {
	type placed struct {
		at     uint64 // in units of 1/2^64
		object int32
	}
	var all []placed
	goals, _ := b.goals()
	first := 0
	for i, s := range b.m.Shares {
		var stream []int32
		var total uint64
		for pass := uint64(0); total < goals[i]; pass++ {
			order := indices(s.Objects)
			if b.spec.within() == Shuffle {
				shuffle.Shuffle(order, rand.NewChaCha8(b.key(epoch, uint64(i), pass)))
			}
			for _, o := range order {
				if total >= goals[i] {
					break
				}
				stream = append(stream, int32(first)+o)
				total += b.units[first+int(o)]
			}
		}
		jitter := rand.NewChaCha8(b.key(epoch, uint64(i), 1<<63)) // not used as a pass number
		var before uint64
		for _, o := range stream {
			unit := b.units[o]
			hi, lo := bits.Mul64(jitter.Uint64(), unit)
			at, _ := bits.Div64(before+hi, lo, total)
			all = append(all, placed{at, o})
			before += unit
		}
		first += s.Objects
	}
	slices.SortStableFunc(all, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	order := make([]int32, len(all))
	for i, p := range all {
		order[i] = p.object
	}
	return order
}

// key returns the random key for one pass over one source.
func (b blend) key(epoch int, source, pass uint64) [sha256.Size]byte {
	text := []byte("stager weighted 1\n")
	for _, n := range []uint64{uint64(b.spec.Seed), uint64(epoch), source, pass} {
		text = binary.BigEndian.AppendUint64(text, n)
	}
	return sha256.Sum256(text)
}

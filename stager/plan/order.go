package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"

	"github.com/stager-dev/stager/stager/internal/shuffle"
)

// Order returns the order of a manifest's objects: a function that returns, for an epoch from 0,
// the index of the object at each position. It depends on nothing else: not on the number of nodes,
// which select their positions by [Shard.Owns], nor on time, release or machine. The caller may
// modify the returned slices. A manifest has at most 2^31-1 objects, as a window does.
//
// ByName is the order of the listing, ByList the order of a list, see [Manifest.Arrange]. Shuffle is
// another permutation for each seed and epoch. ByBlock shuffles blocks of consecutive objects, and
// the objects within each block. For Balanced and Weighted see balanced.go and weighted.go.
func Order(spec OrderSpec, m Manifest) (func(epoch int) []int32, error) {
	n := m.Len()
	if spec.Listed() {
		return func(int) []int32 { return indices(n) }, nil
	}
	switch spec.By {
	case Shuffle:
		return func(epoch int) []int32 {
			order := indices(n)
			shuffle.Shuffle(order, rand.NewChaCha8(orderKey(spec.Seed, epoch)))
			return order
		}, nil
	case ByBlock:
		return func(epoch int) []int32 {
			return blocks(n, spec.Block, rand.NewChaCha8(orderKey(spec.Seed, epoch)))
		}, nil
	case Weighted:
		units, err := units(m)
		return blend{spec, m, units}.order, err
	case Balanced:
		b := newBalancer(spec, m)
		return func(epoch int) []int32 { return b.order(rand.NewChaCha8(orderKey(spec.Seed, epoch))) }, nil
	}
	panic("plan: unknown order " + spec.By)
}

// Listed reports whether the objects of every epoch come in the order of the manifest.
func (o OrderSpec) Listed() bool { return o.By == ByName || o.By == ByList }

func indices(n int) []int32 {
	order := make([]int32, n)
	for i := range order {
		order[i] = int32(i)
	}
	return order
}

// blocks shuffles blocks of length consecutive objects, the last of which may be shorter, and then
// the objects of each block.
func blocks(n, length int, random rand.Source) []int32 {
	at := indices((n + length - 1) / length)
	shuffle.Shuffle(at, random)
	order := make([]int32, 0, n)
	for _, block := range at {
		from := len(order)
		for i := int(block) * length; i < min(n, (int(block)+1)*length); i++ {
			order = append(order, int32(i))
		}
		shuffle.Shuffle(order[from:], random)
	}
	return order
}

func orderKey(seed int64, epoch int) [sha256.Size]byte {
	text := binary.BigEndian.AppendUint64([]byte("stager order 1\n"), uint64(seed))
	return sha256.Sum256(binary.BigEndian.AppendUint64(text, uint64(epoch)))
}

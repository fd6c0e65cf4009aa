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
// modify the returned slices.
//
// ByName is the order of the listing, ByList the order of a list, see [Manifest.Arrange]. Shuffle is
// another permutation for each seed and epoch. ByBlock shuffles blocks of consecutive objects, and
// the objects within each block. For Balanced and Weighted see balanced.go and weighted.go.
func Order(spec OrderSpec, m Manifest) func(epoch int) []int {
	n := len(m.Objects)
	switch spec.By {
	case ByName, ByList:
		return func(int) []int { return indices(n) }
	case Shuffle:
		return func(epoch int) []int {
			order := indices(n)
			shuffle.Shuffle(order, rand.NewChaCha8(orderKey(spec.Seed, epoch)))
			return order
		}
	case ByBlock:
		return func(epoch int) []int {
			return blocks(n, spec.Block, rand.NewChaCha8(orderKey(spec.Seed, epoch)))
		}
	case Weighted:
		return blend{spec, m}.order
	case Balanced:
		b := newBalancer(spec, m)
		return func(epoch int) []int { return b.order(rand.NewChaCha8(orderKey(spec.Seed, epoch))) }
	}
	panic("plan: unknown order " + spec.By)
}

func indices(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

// blocks shuffles blocks of length consecutive objects, the last of which may be shorter, and then
// the objects of each block.
func blocks(n, length int, random rand.Source) []int {
	at := indices((n + length - 1) / length)
	shuffle.Shuffle(at, random)
	order := make([]int, 0, n)
	for _, block := range at {
		from := len(order)
		for i := block * length; i < min(n, (block+1)*length); i++ {
			order = append(order, i)
		}
		shuffle.Shuffle(order[from:], random)
	}
	return order
}

func orderKey(seed int64, epoch int) [sha256.Size]byte {
	text := binary.BigEndian.AppendUint64([]byte("stager order 1\n"), uint64(seed))
	return sha256.Sum256(binary.BigEndian.AppendUint64(text, uint64(epoch)))
}

package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"
	"math/bits"
	"math/rand/v2"

	"github.com/stager-dev/stager/backends"
)

// Order is the order in which n objects come: for each epoch, from 0, the index of
// the object at each position. It depends on nothing else: not on the number of
// nodes, which take their positions by [Shard.Owns], nor on time or release.
//
// ByName is the order of the listing. Shuffle is another permutation for each seed
// and epoch.
func Order(by string, seed int64, n int) func(epoch int) []int {
	if by != ByName && by != Shuffle {
		panic("plan: unknown order " + by)
	}
	return func(epoch int) []int {
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		if by == Shuffle {
			shuffle(order, rand.NewChaCha8(orderKey(seed, epoch)))
		}
		return order
	}
}

func orderKey(seed int64, epoch int) [sha256.Size]byte {
	text := binary.BigEndian.AppendUint64([]byte("stager order 1\n"), uint64(seed))
	return sha256.Sum256(binary.BigEndian.AppendUint64(text, uint64(epoch)))
}

// shuffle is the one of Fisher and Yates. It draws its numbers itself, because
// rand.Rand does not promise that it always will in the same way.
func shuffle(order []int, random rand.Source) {
	for i := len(order) - 1; i > 0; i-- {
		j := below(uint64(i)+1, random)
		order[i], order[j] = order[j], order[i]
	}
}

// below draws evenly from [0, n): the high half of a 128-bit product, where the few
// low halves that would favour some results are drawn anew.
func below(n uint64, random rand.Source) uint64 {
	uneven := -n % n // 2^64 mod n
	for {
		high, low := bits.Mul64(random.Uint64(), n)
		if low >= uneven {
			return high
		}
	}
}

// Digest names what a node is to deliver: the objects in the order of the listing,
// how they are ordered and which part is the node's. Work that was begun under
// another digest belongs to another plan. It is a SHA-256 in hexadecimal.
//
// The number of epochs is not part of it: a run may be prolonged.
func Digest(objects iter.Seq[backends.Object], order OrderSpec, part Shard) string {
	h := sha256.New()
	fmt.Fprintf(h, "stager plan 1\n%s %d\n%v\n", order.By, order.Seed, part)
	for o := range objects {
		fmt.Fprintf(h, "%q %d %q\n", o.Key, o.Size, o.Version)
	}
	return hex.EncodeToString(h.Sum(nil))
}

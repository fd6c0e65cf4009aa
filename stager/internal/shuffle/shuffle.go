// Package shuffle draws orders and numbers from a source of random bits. It does so itself,
// because rand.Rand does not promise that it always will in the same way, and an order
// that is to be repeated must be the same in every release of stager, built with
// whatever release of Go.
package shuffle

import (
	"math/bits"
	"math/rand/v2"
)

// Shuffle puts things into a random order, by the way of Fisher and Yates.
func Shuffle[T any](all []T, random rand.Source) {
	for i := len(all) - 1; i > 0; i-- {
		j := Uint64N(uint64(i)+1, random)
		all[i], all[j] = all[j], all[i]
	}
}

// Uint64N draws evenly from [0, n): the high half of a 128-bit product, where the few
// low halves that would favour some results are drawn anew.
func Uint64N(n uint64, random rand.Source) uint64 {
	uneven := -n % n // 2^64 mod n
	for {
		high, low := bits.Mul64(random.Uint64(), n)
		if low >= uneven {
			return high
		}
	}
}

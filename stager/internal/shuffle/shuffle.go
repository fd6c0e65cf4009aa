// Package shuffle generates permutations and numbers from a source of random bits. It does not use
// rand.Rand, whose algorithms may change: a reproducible order must be the same in every release of
// stager, built with any release of Go.
package shuffle

import (
	"math/bits"
	"math/rand/v2"
)

// Shuffle shuffles all in place, by the Fisher–Yates algorithm.
func Shuffle[T any](all []T, random rand.Source) {
	for i := len(all) - 1; i > 0; i-- {
		j := Uint64N(uint64(i)+1, random)
		all[i], all[j] = all[j], all[i]
	}
}

// Uint64N returns a uniform number from [0, n): the high half of a 128-bit product. It retries for
// the few low halves that would introduce a bias.
func Uint64N(n uint64, random rand.Source) uint64 {
	uneven := -n % n // 2^64 mod n
	for {
		high, low := bits.Mul64(random.Uint64(), n)
		if low >= uneven {
			return high
		}
	}
}

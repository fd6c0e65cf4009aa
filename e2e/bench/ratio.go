package bench

import (
	"math"
	"time"
)

// A ratio is sure when its uncertainty is so little. A row whose pairs stay apart has more
// of them for so long, and is told as it is then.
const (
	sure         = 0.03
	patience     = 2 * time.Minute
	goalPatience = 5 * time.Minute // for a row that has a goal

	rivalPatience = 20 * time.Second // for one of many combinations
)

// Ratios says of each pair how many times as long as stager the peer took. What slows a
// machine for a while slows both of a pair, so these differ less than the times do.
type Ratios []float64

// Median is the ratio of a row.
func (r Ratios) Median() float64 { return middle(r) }

// Uncertainty is the standard error of the median, as a part of it: π/2 times the mean
// distance from it, by the root of how many there are, as for errors of a normal
// distribution. It is 0 of one pair, which can't tell.
func (r Ratios) Uncertainty() float64 {
	if len(r) < 2 {
		return 0
	}
	median, apart := r.Median(), 0.0
	for _, one := range r {
		apart += math.Abs(one - median)
	}
	n := float64(len(r))
	return math.Pi / 2 * apart / (n - 1) / math.Sqrt(n) / median
}

// enough says that there are as many pairs as were asked for, and that no more are needed,
// or that they took as long as they may.
func (r Ratios) enough(least int, took, may time.Duration) bool {
	return len(r) >= least && (took >= may || r.Uncertainty() <= sure)
}

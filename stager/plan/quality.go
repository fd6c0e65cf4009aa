package plan

import (
	"math"
	"slices"
)

// Quality is how well mixed an order is.
type Quality struct {
	// Distances of the class mix of the last samples from that of all: half the sum of
	// the differences of shares, so 0 is the same mix and 1 has no class in common.
	// The greatest, and the one that 95 of 100 positions do not pass. -1 where classes
	// are not known.
	WorstMix, P95Mix float64
	// Entropy tells how unforeseeable the next object is when the one before is known,
	// in the order of the names: 0 for those in their order, 1 for a uniform
	// permutation.
	Entropy float64
}

// Quality reckons that of the order in which objects of the manifest were delivered.
// over is in samples, as in OrderSpec.
func (m Manifest) Quality(delivered []int, over int) Quality {
	q := Quality{WorstMix: -1, P95Mix: -1, Entropy: entropy(delivered, len(m.Objects))}
	if len(m.Classes) > 0 && len(m.Counts) > 0 {
		q.WorstMix, q.P95Mix = m.mix(delivered, over)
	}
	return q
}

func (m Manifest) mix(delivered []int, over int) (worst, p95 float64) {
	global, total := m.global()
	bound := m.over(over)
	classes := make([]int64, len(global))
	var n int64
	from := 0
	var distances []float64
	for _, shard := range delivered {
		for _, k := range m.Counts[shard].Classes {
			classes[k.Class] += int64(k.Samples)
			n += int64(k.Samples)
		}
		full := false
		for n > bound {
			full = true
			for _, k := range m.Counts[delivered[from]].Classes {
				classes[k.Class] -= int64(k.Samples)
				n -= int64(k.Samples)
			}
			from++
		}
		if !full || n == 0 {
			continue // the first samples have no mix yet
		}
		var d float64
		for k, have := range classes {
			d += math.Abs(float64(have)/float64(n) - float64(global[k])/float64(total))
		}
		distances = append(distances, d/2)
	}
	if len(distances) == 0 {
		return -1, -1
	}
	slices.Sort(distances)
	return distances[len(distances)-1], distances[(len(distances)-1)*95/100]
}

// entropy is that of the steps from each object to the next, which a uniform
// permutation spreads evenly over all distances.
func entropy(delivered []int, n int) float64 {
	buckets := min(64, int(math.Sqrt(float64(len(delivered)))))
	if buckets < 2 {
		return 0
	}
	counts := make([]int, buckets)
	for i := 1; i < len(delivered); i++ {
		step := ((delivered[i]-delivered[i-1])%n + n) % n
		counts[step*buckets/n]++
	}
	steps := float64(len(delivered) - 1)
	var h float64
	used := -1
	for _, c := range counts {
		if c > 0 {
			h -= float64(c) / steps * math.Log(float64(c)/steps)
			used++
		}
	}
	h += float64(used) / (2 * steps) // what a few draws of many fall short of
	return min(1, h/math.Log(float64(buckets)))
}

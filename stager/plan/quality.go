package plan

import (
	"math"
	"slices"
)

// Quality is how well mixed an order is.
type Quality struct {
	Objects int `json:"shards"`
	// Distances of the class mix of the last samples from that of all: half the sum of
	// the differences of shares, so 0 is the same mix and 1 has no class in common.
	// Measured is at how many positions; 0 where classes are not known, or before there
	// are as many samples. Then the greatest, and the one that 95 of 100 do not pass.
	Measured int     `json:"mixMeasured"`
	WorstMix float64 `json:"mixWorst"`
	P95Mix   float64 `json:"mixP95"`
	// Entropy tells how unforeseeable the next object is when the one before is known,
	// in the order of the names: 0 for those in their order, 1 for a uniform
	// permutation.
	Entropy float64 `json:"entropy"`
}

// Quality reckons that of the order in which objects of the manifest were delivered.
// over is in samples, as in OrderSpec.
func (m Manifest) Quality(delivered []int, over int) Quality {
	q := Quality{Objects: len(delivered), Entropy: entropy(delivered, len(m.Objects))}
	if len(m.Classes) == 0 || len(m.Counts) == 0 {
		return q
	}
	distances := m.distances(delivered, over)
	if q.Measured = len(distances); q.Measured > 0 {
		slices.Sort(distances)
		q.WorstMix, q.P95Mix = distances[q.Measured-1], distances[(q.Measured-1)*95/100]
	}
	return q
}

func (m Manifest) distances(delivered []int, over int) (distances []float64) {
	global, total := m.global()
	bound := m.over(over)
	classes := make([]int64, len(global))
	var n int64
	from := 0
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
	return distances
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

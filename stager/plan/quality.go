package plan

import (
	"math"
	"slices"
)

// Quality measures how well mixed an order is.
type Quality struct {
	Objects int `json:"shards"`
	// Distances of the class mix of the most recent samples from the mix of all: half the sum of
	// the differences of shares. So 0 is the same mix, and 1 means no class in common. Measured is
	// the number of positions; it is 0 if classes are unknown, or with too few samples. WorstMix is
	// the maximum; the next field is the 95th percentile.
	Measured int     `json:"mixMeasured"`
	WorstMix float64 `json:"mixWorst"`
	P95Mix   float64 `json:"mixP95"`
	// Entropy measures how unpredictable the next object is, given the previous one, in the order
	// of the names: 0 for name order, 1 for a uniform permutation.
	Entropy float64 `json:"entropy"`
}

// Quality measures the order in which objects of the manifest were delivered. over is a number of
// samples, as in OrderSpec.
func (m Manifest) Quality(delivered []int32, over int) Quality {
	q := Quality{Objects: len(delivered), Entropy: entropy(delivered, m.Len())}
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

func (m Manifest) distances(delivered []int32, over int) (distances []float64) {
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
			continue // too few samples so far
		}
		var d float64
		for k, have := range classes {
			d += math.Abs(float64(have)/float64(n) - float64(global[k])/float64(total))
		}
		distances = append(distances, d/2)
	}
	return distances
}

// entropy returns the entropy of the steps from each object to the next. A uniform permutation
// spreads the steps evenly over all distances.
func entropy(delivered []int32, n int) float64 {
	buckets := min(64, int(math.Sqrt(float64(len(delivered)))))
	if buckets < 2 {
		return 0
	}
	counts := make([]int, buckets)
	for i := 1; i < len(delivered); i++ {
		step := (int(delivered[i]-delivered[i-1])%n + n) % n
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
	h += float64(used) / (2 * steps) // correction for the bias of small samples
	return min(1, h/math.Log(float64(buckets)))
}

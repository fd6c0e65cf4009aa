package plan

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/stager-dev/stager/backends"
)

// imbalanced returns a dataset sorted by class. The most frequent class has twenty times as many
// samples as the rarest.
func imbalanced(shards, classes, samples int) Manifest {
	var m Manifest
	weight := func(k int) float64 { return math.Pow(20, float64(k)/float64(classes-1)) }
	var sum float64
	for k := range classes {
		m.Classes = append(m.Classes, fmt.Sprintf("c%02d", k))
		sum += weight(k)
	}
	var until float64
	for k := range classes {
		until += weight(k) / sum * float64(shards)
		for m.Len() < int(math.Round(until)) {
			i := m.Len()
			m.Objects = append(listOf(m), backends.Object{Key: fmt.Sprintf("shard-%06d.tar", i), Size: 256 << 20, Version: backends.Version(fmt.Sprintf("%032x", i))})
			m.Counts = append(m.Counts, Counts{samples, []ClassCount{{int32(k), int32(samples)}}})
		}
	}
	return m
}

// The guarantee: on a dataset sorted by class with an imbalance of 1:20, the mix is three times
// nearer to the global one than that of a shuffle.
func TestBalancedIsThreeTimesNearer(t *testing.T) {
	for _, shards := range []int{500, 2000, 20_000} {
		m := imbalanced(shards, 10, 1000)
		shuffled := m.Quality(orderOf(OrderSpec{By: Shuffle, Seed: 17}, m)(0), 0)
		balanced := m.Quality(orderOf(OrderSpec{By: Balanced, Seed: 17}, m)(0), 0)
		t.Logf("%d shards: p95 distance of the mix %.4f balanced, %.4f shuffled; worst %.4f and %.4f; entropy %.3f and %.3f",
			shards, balanced.P95Mix, shuffled.P95Mix, balanced.WorstMix, shuffled.WorstMix, balanced.Entropy, shuffled.Entropy)
		if balanced.P95Mix*3 > shuffled.P95Mix || balanced.WorstMix*3 > shuffled.WorstMix {
			t.Errorf("%d shards: got %+v, want distances of at most a third of %+v", shards, balanced, shuffled)
		}
	}
}

func TestQuality(t *testing.T) {
	m := imbalanced(1000, 10, 1000)
	sorted := m.Quality(orderOf(OrderSpec{By: ByName}, m)(0), 0)
	if sorted.Entropy != 0 || sorted.WorstMix < 0.9 {
		t.Errorf("sorted by class: got %+v, want no entropy and a mix that is far off", sorted)
	}
	shuffled := m.Quality(orderOf(OrderSpec{By: Shuffle}, m)(0), 0)
	if shuffled.Entropy < 0.95 {
		t.Errorf("shuffled: got an entropy of %.3f, want nearly 1", shuffled.Entropy)
	}
	blocks := m.Quality(orderOf(OrderSpec{By: ByBlock, Block: 20}, m)(0), 0)
	if blocks.Entropy < 0.2 || blocks.Entropy > 0.8 {
		t.Errorf("in blocks: got an entropy of %.3f, want one between", blocks.Entropy)
	}
	if q := (Manifest{Objects: m.Objects}).Quality(indices(1000), 0); q.Measured != 0 || q.Objects != 1000 {
		t.Errorf("without classes: got %+v, want no mix", q)
	}
}

// BenchmarkPlan measures the time for a plan of 100,000 shards after the listing.
func BenchmarkPlan(b *testing.B) {
	for _, order := range []OrderSpec{{By: Shuffle, Seed: 1}, {By: ByBlock, Seed: 1, Block: 64}, {By: Balanced, Seed: 1}} {
		b.Run(order.By, func(b *testing.B) {
			m := imbalanced(100_000, 1000, 1000)
			for b.Loop() {
				digestOf(m, order, Shard{})
				orderOf(order, m)(0)
			}
			var mem runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&mem)
			b.ReportMetric(float64(mem.HeapAlloc)/1e6, "MB")
			runtime.KeepAlive(m)
		})
	}
}

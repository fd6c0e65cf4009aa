package plan

import (
	"cmp"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/stager-dev/stager/stager/internal/shuffle"
)

// Defaults of Balanced.
const (
	DefaultCandidates = 256
	DefaultOver       = 64 // multiplied by the mean number of samples in a shard
)

func (o OrderSpec) candidates() int {
	if o.Candidates == 0 {
		return DefaultCandidates
	}
	return o.Candidates
}

// over returns the number of samples whose mix should match the mix of all.
func (m Manifest) over(over int) int64 {
	if _, total := m.global(); over == 0 && m.Len() > 0 {
		return DefaultOver * total / int64(m.Len())
	}
	return int64(over)
}

// global returns the class histogram of all shards, and its sum.
func (m Manifest) global() (classes []int64, total int64) {
	classes = make([]int64, len(m.Classes))
	for _, c := range m.Counts {
		for _, k := range c.Classes {
			classes[k.Class] += int64(k.Samples)
			total += int64(k.Samples)
		}
	}
	return classes, total
}

// balancer orders shards so that the classes are mixed evenly throughout. Among the next candidates
// it always picks the shard that brings the class histogram of the most recent samples nearest to
// the global one; of equals, the first.
//
// Two rules keep the mix even to the end. First, candidates come from a shuffled order that spreads
// each class evenly; in a plain shuffle classes drift away from their shares, and all candidates
// would end up in one class. Second, global is the histogram of the shards that remain. Otherwise a
// class would pile up for the last shards, if the most recent samples can hold 0 or 1 shard of it,
// but not the 0.6 that are its share.
//
// Every node computes the order by itself and must get the same result on every processor.
// Floating-point arithmetic is deterministic as long as no product is fused with a sum. Go fuses
// them on some processors; float64(x*y) prevents it.
type balancer struct {
	m      Manifest
	choice int
	over   int64
	global []int64
	total  int64
	shards []shardSums
}

// shardSums are the values that a choice needs of each shard.
type shardSums struct {
	n, square float64 // number of samples, and the sum of the squared class counts
	mostly    int32   // the class that exceeds its share most
}

func newBalancer(spec OrderSpec, m Manifest) *balancer {
	b := &balancer{m: m, choice: spec.candidates(), over: m.over(spec.Over), shards: make([]shardSums, m.Len())}
	b.global, b.total = m.global()
	for i, c := range m.Counts {
		s := &b.shards[i]
		for _, k := range c.Classes {
			n := float64(k.Samples)
			s.n += n
			s.square += float64(n * n)
		}
		most := -1.0
		for _, k := range c.Classes {
			share := float64(b.global[k.Class]) / max(float64(b.total), 1)
			if above := float64(k.Samples) - float64(s.n*share); above > most {
				s.mostly, most = k.Class, above
			}
		}
	}
	return b
}

// order returns the order of one epoch.
func (b *balancer) order(random rand.Source) []int32 {
	from := indices(len(b.shards))
	shuffle.Shuffle(from, random)
	b.spread(from, random)
	pool := slices.Clone(from[:min(b.choice, len(from))])
	rest := from[len(pool):]
	out := make([]int32, 0, len(from))
	mix := mix{b: b, last: make([]int64, len(b.global)), left: slices.Clone(b.global), leftSum: b.total, share: make([]float64, len(b.global))}
	for len(pool) > 0 {
		best := mix.nearest(pool)
		out = append(out, pool[best])
		mix.push(out)
		pool = slices.Delete(pool, best, best+1)
		if len(rest) > 0 {
			pool, rest = append(pool, rest[0]), rest[1:]
		}
	}
	return out
}

// spread moves the shards of each class to even distances, with enough jitter to keep two classes
// from being in phase: the j-th of m lies between j/m and (j+1)/m of the whole.
func (b *balancer) spread(order []int32, random rand.Source) {
	total := make([]uint64, len(b.global)+1) // one more, for when there are no classes
	for i := range b.shards {
		total[b.shards[i].mostly]++
	}
	seen := make([]uint64, len(total))
	at := make([]uint64, len(b.shards)) // in units of 1/2^64
	for _, shard := range order {
		k := b.shards[shard].mostly
		at[shard], _ = bits.Div64(seen[k], random.Uint64(), total[k])
		seen[k]++
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(at[a], at[b]) })
}

// mix is the state of a balancer: how often each class was among the most recent samples (H, N
// together), and how often it is still to come (as shares g of their sum).
type mix struct {
	b       *balancer
	last    []int64
	n       float64
	from    int // position of the oldest of the most recent shards
	left    []int64
	leftSum int64
	share   []float64
}

// nearest returns which shard of the pool brings the most recent samples nearest to the rest. With
// h of a shard's n samples, the distance is |H+h - (N+n)g| / (N+n). Its square is expanded here, so
// that each shard costs only as much time as it has classes.
func (x *mix) nearest(pool []int32) (best int) {
	var hh, hg, gg float64 // H·H, H·g, g·g
	for k, last := range x.last {
		h, g := float64(last), float64(x.left[k])/max(float64(x.leftSum), 1)
		x.share[k] = g
		hh += float64(h * h)
		hg += float64(h * g)
		gg += float64(g * g)
	}
	least := -1.0
	for i, shard := range pool {
		s := &x.b.shards[shard]
		n := x.n + s.n
		if n == 0 {
			continue // no sample of any class
		}
		var h, g float64 // H·h, g·h
		for _, k := range x.b.m.Counts[shard].Classes {
			h += float64(float64(x.last[k.Class]) * float64(k.Samples))
			g += float64(x.share[k.Class] * float64(k.Samples))
		}
		d := (hh + 2*h + s.square - float64(2*n*(hg+g)) + float64(float64(n*n)*gg)) / float64(n*n)
		if least < 0 || d < least {
			best, least = i, max(d, 0)
		}
	}
	return best
}

// push adds the last shard of an order to the most recent samples, and drops the oldest shards
// while there are more samples than requested.
func (x *mix) push(order []int32) {
	for _, k := range x.b.m.Counts[order[len(order)-1]].Classes {
		x.left[k.Class] -= int64(k.Samples)
		x.leftSum -= int64(k.Samples)
	}
	x.add(order[len(order)-1], 1)
	for x.n > float64(x.b.over) && x.from < len(order) {
		x.add(order[x.from], -1)
		x.from++
	}
}

func (x *mix) add(shard int32, sign int64) {
	for _, k := range x.b.m.Counts[shard].Classes {
		x.last[k.Class] += sign * int64(k.Samples)
	}
	x.n += float64(float64(sign) * x.b.shards[shard].n)
}

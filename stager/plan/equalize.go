package plan

import (
	"fmt"
	"slices"
)

// How parts are made equal, so that no node waits at the end of an epoch for others that
// still have data.
const (
	EqualizeNone = "none" // they are not
	EqualizeDrop = "drop" // all end with the smallest part
	EqualizeWrap = "wrap" // the smaller ones go on with what they began with
)

// Equal tells whether the parts of nodes are to be made equal.
func (o OrderSpec) Equal() bool { return o.Equalize != "" && o.Equalize != EqualizeNone }

// Nobody stands in an order at a position that is not delivered.
const Nobody = -2

// Part is an epoch whose parts are equal, and its end for one node.
type Part struct {
	Order   []int // that of all nodes, with Nobody at positions that are left out
	Samples int   // how many each node is to take
	// Last is the position of the node's last shard, which may hold more than is to be
	// taken: LastSamples.
	Last, LastSamples int
}

// Equalize makes the parts of nodes equal by sample counts, which the manifest must
// have: at the end of an epoch shards are left out, or come again at positions behind
// it, and of the last one not all samples are taken. The order is overwritten.
func (m Manifest) Equalize(order []int, node Shard, how string) Part {
	p := Part{Last: -1}
	least, most := m.bounds(order, node)
	p.Samples = most
	if how == EqualizeDrop {
		p.Samples = least
	}
	count := max(node.Count, 1)
	taken := make([]int, count)
	again := make([][]int, count) // what each begins with
	next := make([]int, count)    // of again
	short := count                // so many have not enough
	if p.Samples == 0 {
		short = 0
	}
	whole := slices.Clone(order)
	for pos := 0; pos < len(whole) || short > 0; pos++ {
		i := pos % Stripes % count
		object := Nobody
		switch enough := taken[i] == p.Samples; {
		case enough:
		case pos < len(whole):
			object = whole[pos]
			again[i] = append(again[i], object)
		default:
			if taken[i] == 0 {
				again[i] = whole // it has nothing itself
			}
			object = again[i][next[i]%len(again[i])]
			next[i]++
		}
		order = append(order[:pos], object)
		if object == Nobody {
			continue
		}
		n := min(m.Counts[object].Samples, p.Samples-taken[i])
		if taken[i] += n; taken[i] == p.Samples {
			short--
		}
		if node.Owns(pos) {
			p.Last, p.LastSamples = pos, n
		}
	}
	p.Order = order
	return p
}

// bounds are the samples of the smallest and of the largest part.
func (m Manifest) bounds(order []int, node Shard) (least, most int) {
	sums := make([]int, max(node.Count, 1))
	for position, o := range order {
		sums[position%Stripes%len(sums)] += m.Counts[o].Samples
	}
	least = sums[0]
	for _, n := range sums {
		least, most = min(least, n), max(most, n)
	}
	return least, most
}

// CheckParts refuses to make parts equal by dropping everything.
func (m Manifest) CheckParts(node Shard, equalize string) error {
	if equalize == EqualizeDrop && len(m.Objects) < node.Count {
		return &EnvError{fmt.Errorf("%d shards are fewer than %d nodes, so that equalize: drop would leave nothing to any; use equalize: wrap, or fewer nodes", len(m.Objects), node.Count)}
	}
	return nil
}

package plan

import (
	"fmt"
	"slices"
)

// How the nodes' parts are made equal, so that no node waits at the end of an epoch for others that
// still have data.
const (
	EqualizeNone = "none" // parts are not equal
	EqualizeDrop = "drop" // all parts end with the smallest one
	EqualizeWrap = "wrap" // smaller parts repeat their beginning
)

// Equal reports whether the parts of nodes are made equal.
func (o OrderSpec) Equal() bool { return o.Equalize != "" && o.Equalize != EqualizeNone }

// Nobody marks a position of an order that is not delivered.
const Nobody = -2

// Part is an epoch with equal parts, and its end for one node.
type Part struct {
	Order   []int32 // the order of all nodes, with Nobody at omitted positions
	Samples int     // how many samples each node delivers
	// Last is the position of the node's last shard, of which only LastSamples samples are used.
	Last, LastSamples int
}

// Equalize makes the parts of nodes equal by sample counts, which the manifest must have. At the
// end of an epoch it omits shards, or repeats them at additional positions, and uses only some
// samples of the last shard. It overwrites order.
func (m Manifest) Equalize(order []int32, node Shard, how string) Part {
	p := Part{Last: -1}
	least, most := m.bounds(order, node)
	p.Samples = most
	if how == EqualizeDrop {
		p.Samples = least
	}
	count := max(node.Count, 1)
	taken := make([]int, count)
	again := make([][]int32, count) // the beginning of each part
	next := make([]int, count)      // next index of again
	short := count                  // number of parts with too few samples
	if p.Samples == 0 {
		short = 0
	}
	whole := slices.Clone(order)
	for pos := 0; pos < len(whole) || short > 0; pos++ {
		i := pos % Stripes % count
		object := int32(Nobody)
		switch enough := taken[i] == p.Samples; {
		case enough:
		case pos < len(whole):
			object = whole[pos]
			again[i] = append(again[i], object)
		default:
			if taken[i] == 0 {
				again[i] = whole // its own part is empty
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

// bounds returns the number of samples in the smallest and in the largest part.
func (m Manifest) bounds(order []int32, node Shard) (least, most int) {
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

// CheckParts returns an error if making parts equal would drop everything.
func (m Manifest) CheckParts(node Shard, equalize string) error {
	if equalize == EqualizeDrop && m.Len() < node.Count {
		return &EnvError{fmt.Errorf("there are fewer shards (%d) than nodes (%d), so equalize: drop would leave no shard for any node; use equalize: wrap, or fewer nodes", m.Len(), node.Count)}
	}
	return nil
}

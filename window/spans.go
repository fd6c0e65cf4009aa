package window

import (
	"cmp"
	"slices"
)

// spans is a set of positions of an epoch: ascending ranges with gaps between them. It takes memory for
// each gap, not for each position. In the set of the finished positions of a node, the positions of
// others that follow one of its own belong to it, too: otherwise each of its positions would be a range.
type spans []Span

// from returns the index of the first range that does not end before a position.
func (s spans) from(pos int) int {
	i, _ := slices.BinarySearchFunc(s, pos, func(s Span, pos int) int { return cmp.Compare(s[1], pos) })
	return i
}

// after returns the first position from pos on that is not in the set.
func (s spans) after(pos int) int {
	if i := s.from(pos); i < len(s) && s[i][0] <= pos {
		return s[i][1] + 1
	}
	return pos
}

func (s spans) has(pos int) bool { return s.after(pos) > pos }

// add adds a range to the set, and returns it. It may overwrite s.
func (s spans) add(first, last int) spans {
	from := s.from(first - 1)
	to := from
	for ; to < len(s) && s[to][0] <= last+1; to++ {
		first, last = min(first, s[to][0]), max(last, s[to][1])
	}
	return slices.Replace(s, from, to, Span{first, last})
}

// without returns a new set without some positions, which are ascending.
func (s spans) without(positions []int) (rest spans) {
	for _, span := range s {
		first := span[0]
		i, _ := slices.BinarySearch(positions, first)
		for ; i < len(positions) && positions[i] <= span[1]; i++ {
			if first < positions[i] {
				rest = append(rest, Span{first, positions[i] - 1})
			}
			first = positions[i] + 1
		}
		if first <= span[1] {
			rest = append(rest, Span{first, span[1]})
		}
	}
	return rest
}

// of returns the set's ranges of an order, each from a position of this node to one.
func (s spans) of(order Order) (own []Span) {
	for _, span := range s {
		first, last := span[0], min(span[1], order.Len()-1)
		for first <= last && order.At(first) == others {
			first++
		}
		for first <= last && order.At(last) == others {
			last--
		}
		if first <= last {
			own = append(own, Span{first, last})
		}
	}
	return own
}

// withOthers returns the last position of others that follow a position without one of this node between.
func withOthers(order Order, pos int) int {
	for pos+1 < order.Len() && order.At(pos+1) == others {
		pos++
	}
	return pos
}

package disk

import "slices"

// Range is a range of bytes of a file.
type Range struct{ Off, Len int64 }

// End returns the offset after the last byte.
func (r Range) End() int64 { return r.Off + r.Len }

// ranges are disjoint, not adjacent, and ascending.
type ranges []Range

// add returns rs with r included.
func (rs ranges) add(r Range) ranges {
	if r.Len <= 0 {
		return rs
	}
	// Merge all ranges that overlap or touch r.
	from, _ := slices.BinarySearchFunc(rs, r.Off, func(x Range, off int64) int {
		if x.End() < off {
			return -1
		}
		return 1
	})
	to := from
	for ; to < len(rs) && rs[to].Off <= r.End(); to++ {
		end := max(r.End(), rs[to].End())
		r.Off = min(r.Off, rs[to].Off)
		r.Len = end - r.Off
	}
	return slices.Replace(rs, from, to, r)
}

// missing returns the parts of [0, size) that are not included.
func (rs ranges) missing(size int64) (out []Range) {
	at := int64(0)
	for _, r := range rs {
		if r.Off > at {
			out = append(out, Range{at, r.Off - at})
		}
		at = r.End()
	}
	if at < size {
		out = append(out, Range{at, size - at})
	}
	return out
}

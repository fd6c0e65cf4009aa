package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// Stripes is the maximum Count: how finely a dataset can be divided among nodes. 840 is the
// smallest number that every count up to 8 divides evenly.
const Stripes = 840

// Shard is one node's partition of a dataset: number Index of Count, from 0. The zero value is the
// whole.
type Shard struct{ Index, Count int }

// Owns reports whether the item at a position of the order belongs to the partition. Positions are
// dealt round-robin to stripes, and stripes to nodes. So each position belongs to exactly one node
// of Count, and small datasets spread, too.
func (s Shard) Owns(position int) bool {
	return s.Count <= 1 || position%Stripes%s.Count == s.Index
}

// String returns "index/count", as ParseShard parses it.
func (s Shard) String() string { return fmt.Sprintf("%d/%d", s.Index, max(s.Count, 1)) }

// ParseShard parses a partition: "2/8" is the third of eight.
func ParseShard(text string) (Shard, error) {
	index, count, ok := strings.Cut(text, "/")
	i, errIndex := strconv.Atoi(index)
	n, errCount := strconv.Atoi(count)
	if !ok || errIndex != nil || errCount != nil {
		return Shard{}, fmt.Errorf("%q is not a partition: write index/count, such as 2/8", text)
	}
	s := Shard{i, n}
	return s, s.check()
}

// check returns an error for an invalid partition.
func (s Shard) check() error {
	switch {
	case s.Count < 1 || s.Count > Stripes:
		return fmt.Errorf("the number of nodes must be from 1 to %[2]d (got %[1]d)", s.Count, Stripes)
	case s.Index < 0 || s.Index >= s.Count:
		return fmt.Errorf("index %d must be less than the count %d: indices start at 0", s.Index, s.Count)
	}
	return nil
}

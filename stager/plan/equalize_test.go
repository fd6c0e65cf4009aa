package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stager-dev/stager/backends"
)

// counted returns a manifest with one shard for each number of samples.
func counted(samples ...int) Manifest {
	var m Manifest
	for _, n := range samples {
		m.Objects, m.Counts = append(listOf(m), backends.Object{}), append(m.Counts, Counts{Samples: n})
	}
	return m
}

func TestEqualize(t *testing.T) {
	m := counted(10, 7, 10, 9, 5) // node 0 of 2: 25, node 1: 16
	for _, tt := range []struct {
		m        Manifest
		node     Shard
		equalize string
		want     Part
	}{
		{m, Shard{0, 1}, EqualizeDrop, Part{[]int32{0, 1, 2, 3, 4}, 41, 4, 5}},
		{m, Shard{0, 2}, EqualizeDrop, Part{[]int32{0, 1, 2, 3, Nobody}, 16, 2, 6}},
		{m, Shard{1, 2}, EqualizeDrop, Part{[]int32{0, 1, 2, 3, Nobody}, 16, 3, 9}},
		{m, Shard{0, 2}, EqualizeWrap, Part{[]int32{0, 1, 2, 3, 4, 1, Nobody, 3}, 25, 4, 5}},
		{m, Shard{1, 2}, EqualizeWrap, Part{[]int32{0, 1, 2, 3, 4, 1, Nobody, 3}, 25, 7, 2}},
		{counted(8), Shard{1, 2}, EqualizeWrap, Part{[]int32{0, 0}, 8, 1, 8}},
		{counted(0, 0), Shard{1, 2}, EqualizeWrap, Part{[]int32{Nobody, Nobody}, 0, -1, 0}},
	} {
		got := tt.m.Equalize(indices(tt.m.Len()), tt.node, tt.equalize)
		if !cmp.Equal(got, tt.want) {
			t.Errorf("node %v, equalize %q: got %+v, want %+v", tt.node, tt.equalize, got, tt.want)
		}
	}
}

// For any shards, every node has the same number of samples, no node has an additional shard, and
// wrap omits nothing.
func TestPartsAreEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := counted(rapid.SliceOfN(rapid.IntRange(0, 100), 1, 60).Draw(t, "samples")...)
		count := rapid.IntRange(1, 9).Draw(t, "nodes")
		how := rapid.SampledFrom([]string{EqualizeDrop, EqualizeWrap}).Draw(t, "equalize")
		epoch := rapid.IntRange(0, 9).Draw(t, "epoch")
		order := func() []int32 { return orderOf(OrderSpec{By: Shuffle, Seed: 1}, m)(epoch) }
		came := make(map[int]bool)
		whole := m.Equalize(order(), Shard{0, count}, how)
		want := whole.Samples
		for i := range count {
			node := Shard{i, count}
			p := m.Equalize(order(), node, how)
			if !cmp.Equal(p.Order, whole.Order) {
				t.Fatalf("the order of all is %v for node 0 and %v for node %d", whole.Order, p.Order, i)
			}
			sum := 0
			for pos, o := range p.Order {
				if !node.Owns(pos) || o == Nobody {
					continue
				}
				came[int(o)] = true
				if pos < p.Last {
					sum += m.Counts[o].Samples
				} else if pos > p.Last {
					t.Fatalf("node %d goes on behind its last position, %d: %v", i, p.Last, p.Order)
				}
			}
			if sum += p.LastSamples; sum != want || p.Samples != want {
				t.Fatalf("node %d of %d takes %d samples of %v, and is told %d; want %d", i, count, sum, p, p.Samples, want)
			}
		}
		for o := range listOf(m) {
			if how == EqualizeWrap && !came[o] && m.Counts[o].Samples > 0 {
				t.Fatalf("shard %d comes to no node", o)
			}
		}
	})
}

func TestPartsOfNothing(t *testing.T) {
	m := counted(1, 2, 3)
	if err := m.CheckParts(Shard{0, 4}, EqualizeDrop); err == nil {
		t.Error("three shards are dropped to nothing on four nodes")
	}
	for _, err := range []error{m.CheckParts(Shard{0, 3}, EqualizeDrop), m.CheckParts(Shard{0, 4}, EqualizeWrap), m.CheckParts(Shard{}, EqualizeDrop)} {
		if err != nil {
			t.Error(err)
		}
	}
}

package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// These orders are guaranteed: a run that continues with a newer release must find the files in the
// same order.
func TestOrderIsTheSameInEveryRelease(t *testing.T) {
	block := OrderSpec{By: ByBlock, Seed: 17, Block: 4}
	balanced := OrderSpec{By: Balanced, Seed: 17, Candidates: 4, Over: 30}
	for _, tt := range []struct {
		order OrderSpec
		n     int
		epoch int
		want  []int32
	}{
		{OrderSpec{By: ByName, Seed: 1}, 4, 3, []int32{0, 1, 2, 3}},
		{OrderSpec{By: ByList, Seed: 1}, 4, 3, []int32{0, 1, 2, 3}},
		{OrderSpec{By: Shuffle, Seed: 17}, 10, 0, []int32{7, 8, 9, 4, 0, 6, 3, 1, 2, 5}},
		{OrderSpec{By: Shuffle, Seed: 17}, 10, 1, []int32{5, 0, 9, 2, 6, 7, 8, 1, 4, 3}},
		{OrderSpec{By: Shuffle, Seed: -17}, 10, 0, []int32{8, 5, 9, 3, 0, 4, 1, 6, 2, 7}},
		{OrderSpec{By: Shuffle, Seed: 17}, 1, 0, []int32{0}},
		{OrderSpec{By: Shuffle, Seed: 17}, 0, 0, []int32{}},
		{block, 10, 0, []int32{9, 8, 3, 0, 1, 2, 5, 6, 7, 4}},
		{block, 10, 1, []int32{9, 8, 3, 1, 0, 2, 5, 4, 7, 6}},
		{block, 3, 0, []int32{2, 0, 1}},
		{balanced, 12, 0, []int32{7, 3, 9, 1, 8, 4, 11, 0, 10, 2, 6, 5}},
		{balanced, 12, 1, []int32{7, 3, 6, 0, 9, 2, 11, 1, 8, 4, 10, 5}},
		{OrderSpec{By: Balanced, Seed: 17}, 12, 1, []int32{5, 1, 7, 3, 6, 9, 2, 0, 11, 8, 4, 10}},
	} {
		if got := orderOf(tt.order, classed(tt.n, 3))(tt.epoch); !slices.Equal(got, tt.want) {
			t.Errorf("%+v, epoch %d: got %#v, want %v", tt.order, tt.epoch, got, tt.want)
		}
	}
}

// classed returns a dataset that was written class by class, ten samples per shard, in which each
// class is twice as large as the one before it. The shards between two classes have both.
func classed(n, classes int) Manifest {
	var m Manifest
	m.Objects, m.Counts = make(List, n), make([]Counts, n)
	for k := range classes {
		m.Classes = append(m.Classes, fmt.Sprintf("c%02d", k))
	}
	samples := 10 * n
	at := func(k int) int { return samples * (1<<k - 1) / (1<<classes - 1) } // first sample of a class
	for i := range n {
		listOf(m)[i].Key = fmt.Sprintf("shard-%06d.tar", i)
		m.Counts[i].Samples = 10
		for k := range classes {
			if in := min(at(k+1), 10*(i+1)) - max(at(k), 10*i); in > 0 {
				m.Counts[i].Classes = append(m.Counts[i].Classes, ClassCount{int32(k), int32(in)})
			}
		}
	}
	return m
}

// Digests of orders of large datasets: ten shards may not reveal a drift.
func TestLargeOrdersAreTheSameInEveryRelease(t *testing.T) {
	m := classed(20_000, 5)
	for _, tt := range []struct {
		order OrderSpec
		want  string
	}{
		{OrderSpec{By: Shuffle, Seed: 17}, "c0124a4b53ba9917"},
		{OrderSpec{By: ByBlock, Seed: 17, Block: 64}, "5a6fcc9afcae28a6"},
		{OrderSpec{By: Balanced, Seed: 17}, "7147bde255d40aa1"},
		{OrderSpec{By: Balanced, Seed: 17, Candidates: 32, Over: 1000}, "eebba1589da70042"},
	} {
		h := sha256.New()
		fmt.Fprintln(h, orderOf(tt.order, m)(2))
		if got := hex.EncodeToString(h.Sum(nil)[:8]); got != tt.want {
			t.Errorf("%+v: got %s, want %s", tt.order, got, tt.want)
		}
	}
}

// TestOrderContainsEachObjectOnce checks every order; epochs and seeds must differ.
func TestOrderContainsEachObjectOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 200).Draw(t, "objects")
		m := classed(n, rapid.IntRange(1, 6).Draw(t, "classes"))
		order := OrderSpec{
			By:         rapid.SampledFrom([]string{ByName, ByList, Shuffle, ByBlock, Balanced}).Draw(t, "by"),
			Seed:       rapid.Int64().Draw(t, "seed"),
			Block:      rapid.IntRange(1, 300).Draw(t, "block"),
			Candidates: rapid.IntRange(0, 300).Draw(t, "candidates"),
			Over:       rapid.IntRange(0, 3000).Draw(t, "over"),
		}
		for i := range m.Counts { // shards of any size, also empty ones
			for j := range m.Counts[i].Classes {
				m.Counts[i].Classes[j].Samples = rapid.Int32Range(0, maxSamples).Draw(t, "samples")
			}
		}
		epoch := rapid.IntRange(0, 1000).Draw(t, "epoch")
		got := orderOf(order, m)(epoch)
		if again := orderOf(order, m)(epoch); !slices.Equal(got, again) {
			t.Fatalf("got %v, and then %v", got, again)
		}
		slices.Sort(got)
		if want := indices(n); !slices.Equal(got, want) {
			t.Fatalf("got the objects %v, want %v", got, want)
		}
	})
}

// The nodes' parts of one order, merged, are that order again, for any number of nodes.
func TestNodesMergeToTheOrder(t *testing.T) {
	m := classed(3000, 4)
	for _, by := range []string{ByName, Shuffle, ByBlock, Balanced} {
		whole := orderOf(OrderSpec{By: by, Seed: 3, Block: 16}, m)(1)
		for _, count := range []int{1, 2, 4, 7} {
			merged := make([]int32, 0, len(whole))
			parts := make([][]int32, count)
			for i := range parts {
				parts[i] = take(Shard{i, count}, orderOf(OrderSpec{By: by, Seed: 3, Block: 16}, m)(1))
			}
			for position := range whole {
				i := slices.IndexFunc(indices(count), func(i int32) bool { return Shard{int(i), count}.Owns(position) })
				merged, parts[i] = append(merged, parts[i][0]), parts[i][1:]
			}
			if !slices.Equal(merged, whole) {
				t.Errorf("%s: the parts of %d nodes are not the order of one", by, count)
			}
		}
	}
}

// take returns a node's part of an order.
func take(node Shard, order []int32) (part []int32) {
	for position, object := range order {
		if node.Owns(position) {
			part = append(part, object)
		}
	}
	return part
}

func TestBlocksStayTogether(t *testing.T) {
	const n, length = 1000, 64
	order := orderOf(OrderSpec{By: ByBlock, Seed: 5, Block: length}, classed(n, 1))(0)
	for at := 0; at < n; {
		block := int(order[at]) / length
		end := at + min(length, n-block*length)
		for _, i := range order[at:end] {
			if int(i)/length != block {
				t.Fatalf("object %d of block %d lies in block %d", i, i/length, block)
			}
		}
		if at == 0 && slices.IsSorted(order[:end]) {
			t.Error("the first block is in the order of the listing")
		}
		at = end
	}
}

// TestShuffleIsEven counts the 24 orders of four objects. With 24,000 epochs each is expected 1,000
// times. The seed is fixed, so the test is deterministic.
func TestShuffleIsEven(t *testing.T) {
	order := orderOf(OrderSpec{By: Shuffle, Seed: 5}, classed(4, 1))
	seen := make(map[[4]int32]int)
	for epoch := range 24000 {
		seen[[4]int32(order(epoch))]++
	}
	if len(seen) != 24 {
		t.Errorf("got %d different orders of four, want 24", len(seen))
	}
	for o, n := range seen {
		if n < 850 || n > 1150 {
			t.Errorf("order %v came %d times, want about 1,000", o, n)
		}
	}
}

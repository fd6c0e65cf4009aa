package plan

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stager-dev/stager/backends"
)

// sources returns datasets of objects of 100 bytes, with weights.
func sources(shares ...Share) Manifest {
	m := Manifest{Shares: shares}
	for _, s := range shares {
		for range s.Objects {
			m.Objects = append(listOf(m), backends.Object{Size: 100})
		}
	}
	return m
}

func TestWeightedOrderIsTheSameInEveryRelease(t *testing.T) {
	m := sources(Share{"web", 6, 2}, Share{"books", 2, 1})
	for _, tt := range []struct {
		order OrderSpec
		epoch int
		want  []int32
	}{
		{OrderSpec{By: Weighted, Seed: 17}, 0, []int32{6, 4, 1, 5, 0, 7, 2, 3, 7}},
		{OrderSpec{By: Weighted, Seed: 17}, 1, []int32{6, 5, 3, 2, 7, 4, 6, 1, 0}},
		{OrderSpec{By: Weighted, Seed: 17, Within: ByName}, 0, []int32{6, 0, 1, 2, 3, 7, 4, 5, 6}},
	} {
		if got := orderOf(tt.order, m)(tt.epoch); !slices.Equal(got, tt.want) {
			t.Errorf("%+v, epoch %d: got %#v, want %v", tt.order, tt.epoch, got, tt.want)
		}
	}
}

// For any sources and weights, all of each source is delivered, its objects equally often within
// one, and at each position a source is within a shard of its share.
func TestWeightsHold(t *testing.T) {
	type input struct {
		m    Manifest
		spec OrderSpec
	}
	inputs := rapid.Custom(func(t *rapid.T) input {
		var m Manifest
		for i := range rapid.IntRange(1, 4).Draw(t, "sources") {
			m.Shares = append(m.Shares, Share{string(rune('a' + i)), rapid.IntRange(1, 40).Draw(t, "objects"), rapid.IntRange(1, 9).Draw(t, "weight")})
			for range m.Shares[i].Objects {
				m.Objects = append(listOf(m), backends.Object{Size: rapid.Int64Range(0, 50).Draw(t, "size")})
			}
		}
		spec := OrderSpec{By: Weighted, Seed: rapid.Int64().Draw(t, "seed"), Within: rapid.SampledFrom([]string{"", ByName, Shuffle}).Draw(t, "within")}
		return input{m, spec}
	}).Filter(func(in input) bool { return in.m.CheckShares(in.spec) == nil })
	rapid.Check(t, func(t *rapid.T) {
		in := inputs.Draw(t, "input")
		m, spec := in.m, in.spec
		order := orderOf(spec, m)(rapid.IntRange(0, 9).Draw(t, "epoch"))
		units, err := units(m)
		if err != nil {
			t.Fatal(err)
		}
		b := blend{spec, m, units}
		goals, _ := b.goals()
		times := make([]int32, m.Len())
		for _, o := range order {
			times[o]++
		}
		first := 0
		for i, s := range m.Shares {
			of := times[first : first+s.Objects]
			if slices.Min(of) < 1 || slices.Max(of) > slices.Min(of)+1 {
				t.Fatalf("the objects of %s come so often: %v", s.Source, of)
			}
			var total, largest float64
			for o, n := range of {
				total += float64(n) * float64(units[first+o])
				largest = max(largest, float64(units[first+o]))
			}
			if goal := float64(goals[i]); total < goal || total >= goal+largest {
				t.Fatalf("%s brings %v, want %v and no shard more", s.Source, total, goal)
			}
			first += s.Objects
		}
	})
}

// At every position, the mix so far matches the weights.
func TestWeightsHoldAllAlong(t *testing.T) {
	m := sources(Share{"web", 7000, 7}, Share{"books", 100, 2}, Share{"code", 1000, 1})
	order := orderOf(OrderSpec{By: Weighted, Seed: 1}, m)(0)
	if want := 10_000; len(order) != want {
		t.Errorf("got %d positions, want %d: 7,000 of web once, books twenty times, code once", len(order), want)
	}
	var came [3]float64
	for position, o := range order {
		source := 0
		for first := m.Shares[0].Objects; int(o) >= first; first += m.Shares[source].Objects {
			source++
		}
		came[source]++
		for i, s := range m.Shares {
			if want := float64(position+1) * float64(s.Weight) / 10; math.Abs(came[i]-want) > 3 {
				t.Fatalf("behind position %d: %v of %s, want about %v", position, came[i], s.Source, want)
			}
		}
	}
	// No node gets more of a source than its share.
	for i := range 2 {
		books := 0
		for _, o := range take(Shard{i, 2}, order) {
			if o >= 7000 && o < 7100 {
				books++
			}
		}
		if books < 900 || books > 1100 {
			t.Errorf("node %d of 2 gets %d of 2,000 times books", i, books)
		}
	}
}

func TestSamplesWeighMoreThanBytes(t *testing.T) {
	m := sources(Share{"a", 10, 1}, Share{"b", 10, 1})
	m.Counts = make([]Counts, 20)
	for i := range m.Counts {
		m.Counts[i].Samples = 10
		if i >= 10 {
			m.Counts[i].Samples = 30
		}
	}
	if got, want := len(orderOf(OrderSpec{By: Weighted}, m)(0)), 40; got != want {
		t.Errorf("got %d positions, want %d: ten of b and, with a third of the samples, thirty of a", got, want)
	}
}

func TestWeightsThatCannotBeMeant(t *testing.T) {
	for _, m := range []Manifest{
		sources(Share{"web", 5000, 1}, Share{"books", 1, 1}),
		sources(Share{"web", 10, 1}, Share{"books", 10, maxWeight}),
	} {
		want := "books is too small for its weight of "
		if err := m.CheckShares(OrderSpec{By: Weighted}); err == nil || err.Error()[:len(want)] != want {
			t.Errorf("%v: got %v, want %s…", m.Shares, err, want)
		}
	}
	m := sources(Share{"huge", 2, 1}, Share{"small", 2, maxWeight})
	listOf(m)[0].Size, listOf(m)[1].Size = math.MaxInt64, math.MaxInt64
	if m.CheckShares(OrderSpec{By: Weighted}) == nil {
		t.Error("8 EiB times a million are taken")
	}
}

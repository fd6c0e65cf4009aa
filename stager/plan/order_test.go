package plan

import (
	"slices"
	"testing"

	"github.com/stager-dev/stager/backends"
)

// These orders are promised: a run that goes on under a newer release must find the
// files in the order in which it left them.
func TestOrderIsTheSameInEveryRelease(t *testing.T) {
	for _, tt := range []struct {
		by    string
		seed  int64
		n     int
		epoch int
		want  []int
	}{
		{ByName, 1, 4, 3, []int{0, 1, 2, 3}},
		{Shuffle, 17, 10, 0, []int{7, 8, 9, 4, 0, 6, 3, 1, 2, 5}},
		{Shuffle, 17, 10, 1, []int{5, 0, 9, 2, 6, 7, 8, 1, 4, 3}},
		{Shuffle, -17, 10, 0, []int{8, 5, 9, 3, 0, 4, 1, 6, 2, 7}},
		{Shuffle, 17, 1, 0, []int{0}},
		{Shuffle, 17, 0, 0, []int{}},
	} {
		if got := Order(tt.by, tt.seed, tt.n)(tt.epoch); !slices.Equal(got, tt.want) {
			t.Errorf("%s, seed %d, epoch %d: got %#v, want %v", tt.by, tt.seed, tt.epoch, got, tt.want)
		}
	}
}

// TestShuffleIsEven counts which of the 24 orders of four objects come. With 24,000
// epochs each is expected 1,000 times; the seed is fixed, so the test is too.
func TestShuffleIsEven(t *testing.T) {
	order := Order(Shuffle, 5, 4)
	seen := make(map[[4]int]int)
	for epoch := range 24000 {
		seen[[4]int(order(epoch))]++
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

// TestBelowDrawsAnew: with n just above 2^63 nearly half of all draws are uneven.
func TestBelowDrawsAnew(t *testing.T) {
	draws := numbers{0, 2, 1 << 63}
	const n = 1<<63 + 1
	if got, want := below(n, &draws), uint64(1<<62); got != want || len(draws) != 0 {
		t.Errorf("got %d with %d draws left, want %d with none", got, len(draws), want)
	}
}

type numbers []uint64

func (s *numbers) Uint64() (n uint64) {
	n, *s = (*s)[0], (*s)[1:]
	return n
}

func TestDigest(t *testing.T) {
	objects := []backends.Object{{Key: "a.tar", Size: 10, Version: "v1"}, {Key: "b.tar", Size: 20, Version: "v2"}}
	order, part := OrderSpec{By: Shuffle, Seed: 17, Epochs: 3}, Shard{0, 2}
	first := Digest(slices.Values(objects), order, part)
	if want := "067addd641abafe8a380debc494189b176cafb1adbe7c716b306a838e298e461"; first != want {
		t.Errorf("got %s, want %s: every running job would begin anew", first, want)
	}
	longer := order
	longer.Epochs = 9
	if got := Digest(slices.Values(objects), longer, part); got != first {
		t.Error("more epochs make another plan")
	}
	if whole := Digest(slices.Values(objects), order, Shard{}); whole != Digest(slices.Values(objects), order, Shard{0, 1}) {
		t.Error("one node of one and the whole are two plans")
	}

	digests := []string{first}
	other := func(objects []backends.Object, order OrderSpec, part Shard) {
		t.Helper()
		d := Digest(slices.Values(objects), order, part)
		if slices.Contains(digests, d) {
			t.Errorf("%v %v %v has the digest of another plan", objects, order, part)
		}
		digests = append(digests, d)
	}
	other(objects[:1], order, part)
	other([]backends.Object{objects[1], objects[0]}, order, part)
	for _, change := range []func(*backends.Object){
		func(o *backends.Object) { o.Key = "c.tar" },
		func(o *backends.Object) { o.Size = 11 },
		func(o *backends.Object) { o.Version = "v3" },
		func(o *backends.Object) { o.Key = "a.tar\" 10 \"v1\"\n\"b.tar" },
	} {
		changed := slices.Clone(objects)
		change(&changed[0])
		other(changed, order, part)
	}
	other(objects, OrderSpec{By: ByName, Seed: 17}, part)
	other(objects, OrderSpec{By: Shuffle, Seed: 18}, part)
	other(objects, order, Shard{1, 2})
	other(objects, order, Shard{0, 3})
}

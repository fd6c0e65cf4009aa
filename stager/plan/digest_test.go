package plan

import (
	"fmt"
	"testing"

	"github.com/stager-dev/stager/backends"
)

func TestDigesterSumIsDigest(t *testing.T) {
	var list List
	for i := range 2000 { // more than one write to the hash
		list = append(list, backends.Object{
			Key: fmt.Sprintf("train/%04d \"ü\".tar", i), Size: int64(i), Version: backends.Version(fmt.Sprintf("%032x", i)),
		})
	}
	for _, in := range []Input{
		{Order: OrderSpec{By: ByName, Epochs: 2}},
		{Order: OrderSpec{By: Shuffle, Seed: 7}},
		{Order: OrderSpec{By: ByBlock, Seed: 7, Block: 10}},
		{Order: OrderSpec{By: Shuffle}, Unpack: UnpackAuto},
	} {
		in.Window = &Window{}
		for _, n := range []int{0, 1, len(list)} {
			d := NewDigester(in)
			for _, obj := range list[:n] {
				d.Add(obj)
			}
			want := digestOf(Manifest{Objects: list[:n], Unpacked: in.Unpack == UnpackAuto}, in.Order, Shard{})
			if got := d.Sum(); got != want {
				t.Errorf("order %+v, %d objects: got %s, want %s", in.Order, n, got, want)
			}
		}
	}
}

func TestNewDigesterIsNilIfDigestNeedsMoreThanListing(t *testing.T) {
	for name, in := range map[string]Input{
		"list":     {Order: OrderSpec{By: ByList}},
		"balanced": {Order: OrderSpec{By: Balanced}},
		"weighted": {Order: OrderSpec{By: Weighted}},
		"equalize": {Order: OrderSpec{By: Shuffle, Equalize: EqualizeDrop}},
		"sources":  {Order: OrderSpec{By: Shuffle}, Sources: []Source{{}, {}}},
		"groups":   {Order: OrderSpec{By: Shuffle}, Window: &Window{Items: ItemsDirs}},
	} {
		if in.Window == nil {
			in.Window = &Window{}
		}
		if NewDigester(in) != nil {
			t.Errorf("%s: got a Digester, want nil", name)
		}
	}
}

// Each order has an entry, so that a new one does not lack its fields in the digest.
func TestIdentitiesHaveAllOrders(t *testing.T) {
	m := Manifest{Objects: List{{Key: "a"}}, Counts: []Counts{{Samples: 1}}, Shares: []Share{{Objects: 1, Weight: 1}}}
	for _, by := range []string{ByName, ByList, Shuffle, ByBlock, Balanced, Weighted} {
		of, there := identities[by]
		if !there {
			t.Errorf("order %s: got no identity, want one", by)
		}
		counted := m
		counted.Counts = []Counts{{Samples: 2}}
		order := OrderSpec{By: by, Block: 1}
		depends := digestOf(m, order, Shard{}) != digestOf(counted, order, Shard{})
		if depends != (of.counts != nil) || depends && of.listed {
			t.Errorf("order %s: the digest depends on counts: %t, which its identity %+v denies", by, depends, of)
		}
	}
	if len(identities) != 6 {
		t.Errorf("got %d identities, want 6: one for each order", len(identities))
	}
}

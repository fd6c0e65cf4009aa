package stager

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window"
)

// What is summed while the objects are listed is what their items have.
func TestSummaryOfListingIsThatOfItems(t *testing.T) {
	var list plan.List
	for i := range 100 {
		name := []string{"%03d.tar", "%03d.tar.zst", "a/%03d \"ü\".bin", strings.Repeat("long", 60) + "%03d"}[i%4]
		list = append(list, backends.Object{Key: fmt.Sprintf(name, i), Size: int64(i * 977), Version: backends.Version(fmt.Sprint(i))})
	}
	for name, spec := range map[string]plan.Input{
		"name":   {Order: plan.OrderSpec{By: plan.ByName}, Window: &plan.Window{}},
		"reuse":  {Order: plan.OrderSpec{By: plan.Shuffle}, Window: &plan.Window{Reuse: plan.ReuseFit}},
		"unpack": {Order: plan.OrderSpec{By: plan.ByBlock, Block: 3}, Unpack: plan.UnpackAuto, Window: &plan.Window{Expand: 4}},
	} {
		sum, want := newSummary(spec), window.NewExtent(window.Reuse(spec.Window.Reuse))
		m := plan.Manifest{Objects: list, Unpacked: spec.Unpack == plan.UnpackAuto}
		for i, obj := range list {
			sum.add(obj)
			item, err := items{spec, m}.Item(i)
			if err != nil {
				t.Fatal(err)
			}
			want.Add(item)
		}
		digest, extent, err := sum.of(m, spec.Order)
		if err != nil || !reflect.DeepEqual(extent, want) {
			t.Errorf("%s: got the extent %+v, %v; want %+v", name, extent, err, want)
		}
		if wanted, err := plan.Digest(m, spec.Order, plan.Shard{}); err != nil || digest != wanted {
			t.Errorf("%s: got the digest %s, want %s, %v", name, digest, wanted, err)
		}
	}
}

// Samples come from an index, which is read after the listing.
func TestSummaryHasNoExtentWithIndex(t *testing.T) {
	spec := plan.Input{Order: plan.OrderSpec{By: plan.Shuffle}, Index: "index.jsonl", Window: &plan.Window{}}
	sum := newSummary(spec)
	sum.add(backends.Object{Key: "a.tar"})
	if _, extent, err := sum.of(plan.Manifest{Objects: plan.List{{Key: "a.tar"}}}, spec.Order); extent != nil || err != nil {
		t.Errorf("with an index: got the extent %+v, %v; want none", extent, err)
	}
	spec.Order.By = plan.ByList
	if got := newSummary(spec); got != nil {
		t.Errorf("order by list: got %+v, want nil", got)
	}
}

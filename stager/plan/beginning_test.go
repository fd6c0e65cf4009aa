package plan

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stager-dev/stager/backends"
)

// unreadable are objects of which one cannot be read.
type unreadable struct {
	List
	at int
}

func (u unreadable) At(i int) (backends.Object, error) {
	if i == u.at {
		return backends.Object{}, errors.New("damaged")
	}
	return u.List.At(i)
}

func TestBeginsComparesTheFirstObjects(t *testing.T) {
	in := Input{Order: OrderSpec{By: ByName}, Window: &Window{}}
	var all List
	for i := range 9 {
		all = append(all, backends.Object{Key: fmt.Sprint(i), Size: int64(i), Version: "v"})
	}
	name := func(in Input, objects List) string {
		d := NewDigester(in)
		for _, o := range objects {
			d.Add(o)
		}
		return Beginning(len(objects), d.Sum())
	}
	changed := func(i int) List {
		other := slices.Clone(all)
		other[i].Version = "w"
		return other
	}
	other := in
	other.Order.By = Shuffle
	unpacked := in
	unpacked.Unpack = UnpackAuto
	for what, c := range map[string]struct {
		in      Input
		objects Objects
		name    string
		want    int
	}{
		"the first":                      {in, all, name(in, all[:4]), 4},
		"all":                            {in, all, name(in, all), 9},
		"more than there are":            {in, all[:3], name(in, all[:4]), 0},
		"a change behind them":           {in, changed(4), name(in, all[:4]), 4},
		"a change in them":               {in, changed(3), name(in, all[:4]), 0},
		"an object in front of them":     {in, append(List{{Key: "!"}}, all...), name(in, all[:4]), 0},
		"another order":                  {other, all, name(other, all[:4]), 0},
		"another input":                  {unpacked, all, name(in, all[:4]), 0},
		"one that cannot be read":        {in, unreadable{all, 2}, name(in, all[:4]), 0},
		"one behind them cannot be read": {in, unreadable{all, 4}, name(in, all[:4]), 4},
		"the digest of a plan":           {in, all, name(in, all)[len("first-9-"):], 0},
		"no object":                      {in, all, name(in, nil), 0},
		"a number that is not one":       {in, all, "first-x-abc", 0},
		"no digest":                      {in, all, "first-1", 0},
		"a negative number":              {in, all, "first--1-abc", 0},
		"the digest of another number":   {in, all, Beginning(5, name(in, all[:4])[len("first-4-"):]), 0},
	} {
		if got := Begins(c.in, c.objects, c.name); got != c.want {
			t.Errorf("%s (%.20s): got %d, want %d", what, c.name, got, c.want)
		}
	}
}

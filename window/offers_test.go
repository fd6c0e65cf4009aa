package window

import "testing"

func TestOffersReturnTheLowestReadyEntry(t *testing.T) {
	var o offers
	e := entriesAt(Ready, 0, 1, 2)
	for _, i := range []int{1, 2, 0} {
		o.add(e[i], 3)
	}
	e[0].state = Acked
	for range 2 {
		if o.first() != e[1] {
			t.Error("the first offer is not the lowest Ready entry, until it is removed")
		}
	}
	o.pop()
	if o.first() != e[2] {
		t.Error("the next offer is not the next entry")
	}
	o.pop()
	if o.first() != nil {
		t.Error("an offer is left")
	}
}

func TestOffersForgetEntriesOfTheFileProtocol(t *testing.T) {
	var o offers
	for _, e := range entriesAt(Acked, make([]int, 1000)...) {
		o.add(e, 0)
	}
	if got := len(o.heap); got > 66 {
		t.Errorf("%d entries are kept although none is Ready, want at most 66", got)
	}
}

package window

import (
	"context"
	"io"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// planOf returns the progress at the start of a plan of two epochs with these orders.
func planOf(orders ...Indexes) progress {
	p := newProgress(&Config{Epochs: 2})
	for epoch, order := range orders {
		p.ordered(epoch, order, own(order))
	}
	return p
}

// own returns the number of positions that are not others.
func own(order Order) (n int) {
	for range positions(order) {
		n++
	}
	return n
}

// none is a predicate that is true for no position.
func none(seq) bool { return false }

func fetchAll(seq, int) bool { return false }

func TestProgressReservesInOrder(t *testing.T) {
	p := planOf(Indexes{0, others, 2}, Indexes{1, 0})
	var got []seq
	for a, ok := p.first(none, fetchAll); ok; a, ok = p.first(func(a seq) bool { return slices.Contains(got, a) }, fetchAll) {
		got = append(got, a)
		p.reserved(a)
	}
	if want := []seq{{0, 0}, {0, 2}, {1, 0}, {1, 1}}; !slices.Equal(got, want) || p.top != (seq{1, 2}) {
		t.Errorf("got %v up to %v, want %v", got, p.top, want)
	}
	p.planAgain(seq{1, 0})
	p.planAgain(seq{0, 2})
	if a, ok := p.first(none, fetchAll); !ok || a != (seq{0, 2}) {
		t.Errorf("got %v (%t), want the lowest position that is fetched again", a, ok)
	}
	p.planned(seq{0, 2})
	if a, ok := p.first(none, fetchAll); !ok || a != (seq{1, 0}) {
		t.Errorf("got %v (%t), want the other one", a, ok)
	}
	if a, ok := p.first(none, func(a seq, item int) bool { return a == seq{1, 0} && item == 1 }); ok {
		t.Errorf("got %v, which waits for reuse", a)
	}
}

// A position of the next epoch that waits for reuse is passed. Once its epoch begins, it is fetched
// if it has no file.
func TestProgressReturnsToPositionsThatWaitedForReuse(t *testing.T) {
	p := planOf(Indexes{0}, Indexes{0, 1})
	awaited := func(a seq, _ int) bool { return a == seq{1, 0} && p.low.epoch == 0 }
	p.reserved(seq{0, 0})
	active := map[seq]bool{{0, 0}: true}
	is := func(a seq) bool { return active[a] }
	if a, ok := p.first(is, awaited); !ok || a != (seq{1, 1}) {
		t.Errorf("got %v (%t), want the position that waits for nothing", a, ok)
	}
	p.reserved(seq{1, 1})
	active[seq{1, 1}] = true
	p.finish(seq{0, 0})
	if !p.atEnd() {
		t.Fatal("the epoch has not ended")
	}
	p.begin()
	if a, ok := p.first(is, awaited); !ok || a != (seq{1, 0}) {
		t.Errorf("got %v (%t), want the position that was passed", a, ok)
	}
}

func TestProgressStopsAtAnUnknownOrder(t *testing.T) {
	p := planOf(Indexes{0})
	if got := p.missingOrder(false); got != -1 {
		t.Errorf("epoch %d needs an order, want none before its first position is to be fetched", got)
	}
	if got := p.missingOrder(true); got != 1 {
		t.Errorf("epoch %d needs an order ahead, want 1", got)
	}
	if a, ok := p.first(func(a seq) bool { return a == seq{0, 0} }, fetchAll); ok {
		t.Errorf("got %v of an epoch without an order", a)
	}
	if got := p.missingOrder(false); got != 1 {
		t.Errorf("epoch %d needs an order, want 1", got)
	}
}

func TestProgressEndsEpochs(t *testing.T) {
	p := planOf(Indexes{0, others, 2}, Indexes{1})
	p.finish(seq{0, 2})
	if p.atEnd() || !p.finished(seq{0, 2}) || p.finished(seq{0, 0}) {
		t.Error("the epoch ended before its first position was finished")
	}
	if all, finished := p.count(); all != 2 || finished != 1 {
		t.Errorf("got %d of %d finished, want 1 of 2", finished, all)
	}
	p.finish(seq{1, 0})
	p.finish(seq{0, 0})
	if !p.atEnd() || p.recorded(0) || !p.recorded(1) {
		t.Errorf("the epoch has not ended: low is %v, settled %v", p.low, p.settled)
	}
	p.begin()
	if !p.atEnd() || p.over(p.low.epoch) || !p.finished(seq{0, 0}) {
		t.Error("epoch 1 has not ended, whose only position is finished")
	}
	p.begin()
	if p.atEnd() || !p.over(p.low.epoch) || len(p.orders)+len(p.settled) > 0 {
		t.Errorf("the plan is not over: low is %v, with %d orders and %d positions", p.low, len(p.orders), len(p.settled))
	}
	p.finish(seq{0, 0})
	if len(p.settled) > 0 {
		t.Error("a position before low was stored")
	}
}

// The numbers are those of a count from the first position, however it got there.
func TestProgressCountsEveryPositionOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newProgress(&Config{Epochs: 3, More: func(context.Context, int) (Item, error) { return Item{}, io.EOF }})
		length := rapid.IntRange(0, 8)
		part := rapid.IntRange(1, 3).Draw(t, "nodes")
		order := func() Order {
			return owned{Sequence(length.Draw(t, "length")), func(pos int) bool { return pos%part == 0 }}
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			epoch := p.low.epoch + rapid.IntRange(0, 1).Draw(t, "ahead")
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1: // a position is finished
				if n := p.order(epoch).Len(); n > 0 {
					if a := (seq{epoch, rapid.IntRange(0, n-1).Draw(t, "position")}); p.item(a) != others {
						p.finish(a)
					}
				}
			case 2: // an order is known, or another one continues it
				if next := order(); next.Len() >= p.order(epoch).Len() {
					p.ordered(epoch, next, own(next))
				}
			case 3:
				if p.known(epoch) {
					p.grow(epoch, p.order(epoch).Len())
				}
			case 4:
				p.whole[p.low.epoch] = true
			}
			if p.atEnd() {
				p.begin()
			}
			wantAll, wantFinished := 0, 0
			for pos := range positions(p.order(p.low.epoch)) {
				wantAll++
				if p.finished(seq{p.low.epoch, pos}) {
					wantFinished++
				}
			}
			if all, finished := p.count(); all != wantAll || finished != wantFinished {
				t.Fatalf("got %d of %d finished, want %d of %d", finished, all, wantFinished, wantAll)
			}
		}
	})
}

func TestProgressWaitsForAGrowingOrder(t *testing.T) {
	p := newProgress(&Config{Epochs: 1, More: func(context.Context, int) (Item, error) { return Item{}, io.EOF }})
	p.ordered(0, Indexes{0}, 1)
	p.finish(seq{0, 0})
	if _, ok := p.first(none, fetchAll); ok || p.atEnd() || !p.exhausted() {
		t.Error("the epoch ended although its order may grow")
	}
	p.whole[0] = true
	if !p.atEnd() || p.exhausted() {
		t.Error("the epoch has not ended although its order is whole")
	}
}

func TestProgressDeliversInOrder(t *testing.T) {
	p := planOf(Indexes{0, others, 2, 3})
	leased := map[seq]bool{{0, 0}: true}
	is := func(a seq) bool { return leased[a] }
	if !p.isDue(seq{0, 2}, is) || p.isDue(seq{0, 3}, is) {
		t.Error("the lowest position without a lease is not the only one due")
	}
	leased[seq{0, 2}] = true
	if !p.isDue(seq{0, 3}, is) {
		t.Error("a position is not due although those before it are held")
	}
	clear(leased)
	p.planAgain(seq{0, 0})
	if p.isDue(seq{0, 3}, is) || !p.isDue(seq{0, 0}, is) {
		t.Error("a position is due before an earlier one that is fetched again")
	}
}

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
		p.ordered(epoch, order)
	}
	return p
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

// Whatever happens, in whatever order: what is finished is what was marked, and what is known of all
// positions together is what it is one by one.
func TestProgressKnowsWhatIsFinished(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newProgress(&Config{Epochs: 3, More: func(context.Context, int) (Item, error) { return Item{}, io.EOF }})
		length := rapid.IntRange(0, 12)
		nodes := rapid.IntRange(1, 3).Draw(t, "nodes")
		order := func() Order {
			return owned{Sequence(length.Draw(t, "length")), func(pos int) bool { return pos%nodes == 0 }}
		}
		grows := rapid.Bool().Draw(t, "grows") // by one item, or by an order that continues it
		marked := map[seq]bool{}
		if rapid.Bool().Draw(t, "restarted") { // the journal is read before the orders are known
			for _, pos := range rapid.SliceOf(rapid.IntRange(0, 3)).Draw(t, "recorded") {
				a := seq{0, pos * nodes}
				marked[a] = true
				p.settled[0] = p.settled[0].add(a.pos, a.pos)
			}
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			epoch := p.low.epoch + rapid.IntRange(0, 1).Draw(t, "ahead")
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1:
				if n := p.order(epoch).Len(); n > 0 {
					if a := (seq{epoch, rapid.IntRange(0, n-1).Draw(t, "position")}); p.item(a) != others {
						marked[a] = true
						p.finish(a)
					}
				}
			case 2:
				if next := order(); next.Len() >= p.order(epoch).Len() && !p.over(epoch) && !(grows && p.known(epoch)) {
					p.ordered(epoch, next)
				}
			case 3:
				if grows && p.known(epoch) {
					p.grow(epoch, p.order(epoch).Len())
				}
			case 4:
				p.whole[p.low.epoch] = true
			}
			for p.atEnd() {
				p.begin()
			}
			checkProgress(t, &p, marked)
		}
	})
}

func checkProgress(t *rapid.T, p *progress, marked map[seq]bool) {
	t.Helper()
	for epoch := range p.orders {
		var own, finished, skipped []int
		for pos := range positions(p.order(epoch)) {
			own = append(own, pos)
			if got, want := p.finished(seq{epoch, pos}), marked[seq{epoch, pos}]; got != want {
				t.Fatalf("position %d of epoch %d is finished: got %v, want %v", pos, epoch, got, want)
			}
			if marked[seq{epoch, pos}] {
				finished = append(finished, pos)
			}
		}
		if epoch == p.low.epoch {
			if all, n := p.count(); all != len(own) || n != len(finished) {
				t.Fatalf("got %d of %d finished, want %d of %d", n, all, len(finished), len(own))
			}
		}
		if len(finished) > 0 {
			skipped = rapid.SliceOfDistinct(rapid.SampledFrom(finished), rapid.ID[int]).Draw(t, "skipped")
			slices.Sort(skipped)
		}
		want := spansOf(p.order(epoch), func(pos int) bool { return marked[seq{epoch, pos}] && !slices.Contains(skipped, pos) })
		if got := p.finishedOf(epoch, skipped); !slices.Equal(got, want) {
			t.Fatalf("got the ranges %v of epoch %d without %v, want %v", got, epoch, skipped, want)
		}
		known := p.settled[epoch].from(p.order(epoch).Len()) // ranges of this order
		if most := len(want) + len(skipped) + 1; known > most {
			t.Fatalf("%v has %d ranges of the order, want at most %d", p.settled[epoch], known, most)
		}
	}
}

func TestProgressWaitsForAGrowingOrder(t *testing.T) {
	p := newProgress(&Config{Epochs: 1, More: func(context.Context, int) (Item, error) { return Item{}, io.EOF }})
	p.ordered(0, Indexes{0})
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

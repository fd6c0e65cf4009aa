package window

import "slices"

// progress is how far the window is in its plan: the orders of its epochs, which positions are
// finished, and which are to be fetched next. It knows positions, and neither files nor readers.
//
// Always:
//   - All positions before low are finished, and low belongs to the current epoch. settled holds the
//     finished positions from low on, and may hold some before.
//   - All positions before next have been reserved, are finished or belong to other nodes, except
//     those in again, which are to be fetched again, and those that wait for reuse.
//   - No position from top on was ever reserved.
//   - The orders of epochs before the current one are forgotten.
//
// The window's mutex guards it.
type progress struct {
	epochs  int                 // 0: unlimited
	orders  map[int]*epochOrder // by epoch: those that are being delivered or fetched
	growing bool                // Config.More continues the orders, or Continue
	whole   map[int]bool        // epochs whose order is complete, if growing

	low     seq
	settled map[int]spans // by epoch
	next    seq
	top     seq
	again   []seq // ascending
	due     seq   // all positions before it were delivered once or are finished; unused with AnyOrder
}

// epochOrder is the order of an epoch for this node.
type epochOrder struct {
	Order

	own, finished int // how many of its positions are this node's, and finished
}

func newProgress(cfg *Config) progress {
	return progress{
		epochs: cfg.Epochs, orders: map[int]*epochOrder{}, growing: cfg.More != nil || cfg.Beginning, whole: map[int]bool{},
		settled: map[int]spans{},
	}
}

// over reports whether the plan ends before an epoch.
func (p *progress) over(epoch int) bool { return p.epochs > 0 && epoch >= p.epochs }

// grows reports whether an epoch's order may still grow.
func (p *progress) grows(epoch int) bool { return p.growing && !p.whole[epoch] }

// known reports whether an epoch's order is known.
func (p *progress) known(epoch int) bool { _, known := p.orders[epoch]; return known }

// order returns an epoch's order, without positions if it is not known.
func (p *progress) order(epoch int) Order {
	if order, known := p.orders[epoch]; known {
		return order.Order
	}
	return Sequence(0)
}

// ordered stores the order of an epoch.
func (p *progress) ordered(epoch int, order Order) {
	var settled spans
	for _, s := range p.settled[epoch] {
		settled = settled.add(s[0], withOthers(order, s[1]))
	}
	if len(settled) > 0 {
		p.settled[epoch] = settled
	}
	o := &epochOrder{Order: order}
	for pos := range positions(order) {
		o.own++
		if p.finished(seq{epoch, pos}) {
			o.finished++
		}
	}
	p.orders[epoch] = o
}

// forgetItems forgets the items of an epoch's positions before one, if they take memory.
func (p *progress) forgetItems(epoch, before int) {
	order := p.orders[epoch]
	if order == nil || before < order.Len()/2 { // what is left would be copied for little
		return
	}
	if own, ok := order.Order.(owned); ok {
		if all, ok := own.Order.(*permutation); ok {
			own.Order = rest{all.n, before, slices.Clone(all.order()[before:])}
			order.Order = own
		}
	}
}

// grow appends an item to a known order.
func (p *progress) grow(epoch, item int) {
	o := p.orders[epoch]
	list, grown := o.Order.(Indexes)
	if !grown {
		for pos := range o.Len() {
			list = append(list, int32(o.At(pos)))
		}
	}
	o.Order = append(list, int32(item)) // limited by memory
	o.own++
	if p.finished(seq{epoch, len(list)}) {
		o.finished++
	}
}

// item returns the index of the item at a position of a known order.
func (p *progress) item(a seq) int { return p.orders[a.epoch].At(a.pos) }

// finished reports whether a position is acknowledged or skipped.
func (p *progress) finished(a seq) bool { return a.before(p.low) || p.settled[a.epoch].has(a.pos) }

// finish marks a position of this node as finished. Call atEnd afterwards.
func (p *progress) finish(a seq) {
	if p.finished(a) {
		return
	}
	last := a.pos
	if order, known := p.orders[a.epoch]; known {
		order.finished++
		last = withOthers(order, last)
	}
	p.settled[a.epoch] = p.settled[a.epoch].add(a.pos, last)
}

// finishedOf returns the ranges of finished positions of a known order, without some positions.
func (p *progress) finishedOf(epoch int, without []int) []Span {
	finished := slices.Clone(p.settled[epoch])
	if epoch == p.low.epoch && p.low.pos > 0 {
		finished = finished.add(0, p.low.pos-1)
	}
	return finished.without(without).of(p.orders[epoch])
}

// atEnd moves low past the finished positions, and reports whether the current epoch has none left.
func (p *progress) atEnd() bool {
	order, known := p.orders[p.low.epoch]
	if !known || p.over(p.low.epoch) {
		return false
	}
	settled := p.settled[p.low.epoch]
	for p.low.pos < order.Len() {
		if after := settled.after(p.low.pos); after > p.low.pos {
			p.low.pos = min(after, order.Len())
		} else if order.At(p.low.pos) == others {
			p.low.pos++
		} else {
			break
		}
	}
	p.settled[p.low.epoch] = settled[settled.from(p.low.pos):]
	return p.low.pos >= order.Len() && !p.grows(p.low.epoch)
}

// begin makes the next epoch the current one.
func (p *progress) begin() {
	delete(p.orders, p.low.epoch)
	delete(p.settled, p.low.epoch)
	p.low = seq{p.low.epoch + 1, 0}
	p.next = p.low // skips positions that waited for reuse, and files that are there
}

// first returns the lowest position to reserve. active reports whether a position has an entry, and
// awaited whether a position need not be fetched because it waits for reuse.
func (p *progress) first(active func(seq) bool, awaited func(seq, int) bool) (seq, bool) {
	for _, a := range p.again {
		if !a.before(p.next) {
			break
		}
		if !awaited(a, p.item(a)) {
			return a, true
		}
	}
	if p.next.before(p.low) {
		p.next = p.low
	}
	for p.next.epoch <= p.low.epoch+1 && !p.over(p.next.epoch) {
		order, known := p.orders[p.next.epoch]
		if !known {
			return seq{}, false
		}
		if p.next.pos >= order.Len() {
			if p.grows(p.next.epoch) {
				return seq{}, false
			}
			p.next = seq{p.next.epoch + 1, 0}
			continue
		}
		if after := p.settled[p.next.epoch].after(p.next.pos); after > p.next.pos {
			p.next.pos = after
			continue
		}
		item := order.At(p.next.pos)
		if item != others && !active(p.next) && !awaited(p.next, item) {
			return p.next, true
		}
		p.next.pos++
	}
	return seq{}, false
}

// reserved records that a position has an entry from now on.
func (p *progress) reserved(a seq) {
	p.planned(a)
	if !a.before(p.top) {
		p.top = seq{a.epoch, a.pos + 1}
	}
}

// planAgain schedules a position again that next may have passed.
func (p *progress) planAgain(a seq) {
	at, _ := slices.BinarySearchFunc(p.again, a, seq.compare)
	p.again = slices.Insert(p.again, at, a)
	if a.before(p.due) {
		p.due = a
	}
}

// planned withdraws planAgain.
func (p *progress) planned(a seq) {
	if at, found := slices.BinarySearchFunc(p.again, a, seq.compare); found {
		p.again = slices.Delete(p.again, at, at+1)
	}
}

// isDue reports whether every position before a has been delivered or is finished. leased reports
// whether a reader holds a position.
func (p *progress) isDue(a seq, leased func(seq) bool) bool {
	if p.due.before(p.low) {
		p.due = p.low
	}
	for p.due.before(a) {
		if after := p.settled[p.due.epoch].after(p.due.pos); after > p.due.pos {
			p.due.pos = after
			continue
		}
		if p.item(p.due) != others && !leased(p.due) {
			return false
		}
		p.due.pos++
	}
	return true
}

// missingOrder returns the epoch whose order is needed next; -1: none. Orders are retained for the
// current epoch and the next one, which is as far as fetching runs ahead. ahead requests that of the
// next one even before its first position is to be fetched.
func (p *progress) missingOrder(ahead bool) int {
	last := min(p.low.epoch+1, p.next.epoch)
	if ahead {
		last = p.low.epoch + 1
	}
	for epoch := p.low.epoch; epoch <= last && !p.over(epoch); epoch++ {
		if !p.known(epoch) {
			return epoch
		}
	}
	return -1
}

// exhausted reports whether all known positions of a growing epoch, next.epoch, are reserved.
func (p *progress) exhausted() bool {
	order, known := p.orders[p.next.epoch]
	return known && p.next.pos >= order.Len() && p.grows(p.next.epoch)
}

// recorded reports whether any position of an epoch from the current one on is finished.
func (p *progress) recorded(epoch int) bool { return len(p.settled[epoch]) > 0 }

// gaps returns how many ranges of finished positions there are from low on.
func (p *progress) gaps() (n int) {
	for _, settled := range p.settled {
		n += len(settled)
	}
	return n
}

// count returns the number of positions of the current epoch that this node owns, and how many of
// them are finished.
func (p *progress) count() (all, finished int) {
	order, known := p.orders[p.low.epoch]
	if !known {
		return 0, 0
	}
	return order.own, order.finished
}

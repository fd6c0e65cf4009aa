package window

import (
	"fmt"
	"iter"
	"runtime/debug"
	"sync"
)

// Order is the order of an epoch: which item is at each position. It does not change.
type Order interface {
	Len() int
	// At returns the index in Config.Items of the item at a position, or Nobody.
	At(pos int) int
}

// Sequence is the order of that many items as they are listed. It takes no memory, however many they are.
type Sequence int

// Len implements Order.
func (n Sequence) Len() int { return int(n) }

// At implements Order.
func (n Sequence) At(pos int) int { return pos }

// Indexes is any order. It takes four bytes for each position.
type Indexes []int32

// Len implements Order.
func (x Indexes) Len() int { return len(x) }

// At implements Order.
func (x Indexes) At(pos int) int { return int(x[pos]) }

// Permuted returns an order of n positions that all have an item. compute is called once, when one of
// these is needed; from then on the order takes four bytes for each position.
func Permuted(n int, compute func() []int32) Order {
	return &permutation{n: n, order: sync.OnceValue(func() []int32 {
		if n >= manyPositions {
			debug.FreeOSMemory() // what the order of an earlier epoch took, before another one is allocated
		}
		return compute()
	})}
}

// manyPositions are as many as take more memory than the collector leaves uncollected anyway.
const manyPositions = 1 << 20

type permutation struct {
	n     int
	order func() []int32
}

func (p *permutation) Len() int { return p.n }

func (p *permutation) At(pos int) int { return int(p.order()[pos]) }

// rest is an order whose first positions are finished, so that their items are not known any more.
type rest struct {
	n, from int
	order   []int32 // from that position on
}

func (r rest) Len() int { return r.n }

func (r rest) At(pos int) int {
	if pos < r.from {
		return 0 // it has one
	}
	return int(r.order[pos-r.from])
}

// owned is an order without the positions of other nodes.
type owned struct {
	Order

	owns func(pos int) bool
}

func (o owned) At(pos int) int {
	if !o.owns(pos) {
		return others
	}
	return o.Order.At(pos)
}

// positions returns the positions of an order that are not others, and their items.
func positions(o Order) iter.Seq2[int, int] {
	return func(yield func(pos, item int) bool) {
		for pos := range o.Len() {
			if item := o.At(pos); item != others && !yield(pos, item) {
				return
			}
		}
	}
}

// loadOrder computes an epoch's order, which may take long.
func (w *Window) loadOrder(epoch int) {
	w.mu.Lock()
	w.progress.forgetItems(w.progress.low.epoch, w.progress.low.pos)
	w.mu.Unlock()
	order := w.config().Order(epoch)
	if p, ok := order.(*permutation); ok {
		p.order() // now, without the lock
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls.ordering = false
	w.orderedLocked(epoch, order)
	w.note()
}

func (w *Window) orderedLocked(epoch int, all Order) {
	order := w.own(all)
	if err := w.checkOrder(epoch, order); err != nil {
		w.life.failed = err
		return
	}
	if epoch >= w.progress.low.epoch {
		w.progress.ordered(epoch, order)
		w.wantLocked(epoch, order)
	}
}

// Nobody is the item of a position that no node delivers; others is that of a position that this
// node does not deliver.
const (
	Nobody = -2
	others = Nobody
)

// own returns an order of all nodes with others at the positions of other nodes.
func (w *Window) own(order Order) Order { return owned{order, w.cfg.Owns} }

// ownPositions is own for a caller who asks which positions are this node's, not for their items.
func (w *Window) ownPositions(order Order) Order {
	if p, ok := order.(*permutation); ok {
		order = Sequence(p.n)
	}
	return w.own(order)
}

// checkOrder checks an order of Config.Order.
func (w *Window) checkOrder(epoch int, order Order) error {
	n, some := w.items.len(), false
	for pos, item := range positions(order) {
		if item < 0 || item >= n {
			return fmt.Errorf("input %s: position %d of epoch %d is item %d of %d", w.cfg.Input, pos, epoch, item, n)
		}
		some = true
	}
	if w.cfg.Epochs == 0 && !some {
		return fmt.Errorf("epoch %d has no items for this node, and the number of epochs is unlimited", epoch)
	}
	return nil
}

// order computes the orders that are needed to understand the journal: that of the current epoch, and
// that of the next one only if the journal is about it or files may be retained for it. One of Indexes
// takes four bytes for each item of the plan; entryOf computes what a file needs.
func (r *recovery) order() error {
	for epoch := r.progress.low.epoch; epoch <= r.progress.low.epoch+1; epoch++ {
		if epoch > r.progress.low.epoch && r.cfg.Reuse == ReuseNone && !r.progress.recorded(epoch) && !r.deliveries.recorded(epoch) {
			break
		}
		if err := r.orderOf(epoch); err != nil {
			return err
		}
		r.advanceLocked()
	}
	return nil
}

// orderOf computes the order of an epoch, unless it is known or the plan ends before it.
func (r *recovery) orderOf(epoch int) error {
	if r.progress.known(epoch) || r.progress.over(epoch) {
		return nil
	}
	r.orderedLocked(epoch, r.cfg.Order(epoch))
	return r.life.failed
}

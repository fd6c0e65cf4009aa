package window

import (
	"fmt"
	"iter"
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
	order := w.config().Order(epoch)
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

package window

import (
	"fmt"
	"slices"
)

// loadOrder computes an epoch's order, which may take long.
func (w *Window) loadOrder(epoch int) {
	order := w.config().Order(epoch)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls.ordering = false
	w.orderedLocked(epoch, order)
	w.note()
}

func (w *Window) orderedLocked(epoch int, order []int32) {
	order = w.masked(order)
	if err := w.checkOrder(epoch, order); err != nil {
		w.life.failed = err
		return
	}
	if epoch >= w.progress.low.epoch {
		w.progress.orders[epoch] = order
		w.wantLocked(epoch, order)
	}
}

// Nobody is the item of a position that no node delivers; others is that of a position that this
// node does not deliver.
const (
	Nobody = -2
	others = Nobody
)

// masked puts others at the positions of other nodes, and returns the order.
func (w *Window) masked(order []int32) []int32 {
	for pos := range order {
		if !w.cfg.Owns(pos) {
			order[pos] = others
		}
	}
	return order
}

// checkOrder checks an order of Config.Order.
func (w *Window) checkOrder(epoch int, order []int32) error {
	if w.cfg.Epochs == 0 && !slices.ContainsFunc(order, func(item int32) bool { return item != others }) {
		return fmt.Errorf("epoch %d has no items for this node, and the number of epochs is unlimited", epoch)
	}
	n := w.items.len()
	for pos, item := range order {
		if item != others && (item < 0 || int(item) >= n) {
			return fmt.Errorf("input %s: position %d of epoch %d is item %d of %d", w.cfg.Input, pos, epoch, item, n)
		}
	}
	return nil
}

// order computes the orders that are needed to understand the journal: that of the current epoch, and
// that of the next one only if the journal is about it or files may be retained for it. Each takes
// four bytes for each item of the plan; entryOf computes what a file needs.
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
	if _, known := r.progress.orders[epoch]; known || r.progress.over(epoch) {
		return nil
	}
	r.orderedLocked(epoch, r.cfg.Order(epoch))
	return r.life.failed
}

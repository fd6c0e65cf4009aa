package window

import (
	"context"
	"errors"
	"io"
)

// growth is how much of the orders that Config.More continues is known.
type growth struct {
	whole  map[int]bool // epochs whose order is complete
	asking bool         // a call of More is running
	later  bool         // it returned ErrLater, and not all items are finished yet
}

// growsLocked reports whether an epoch's order may still grow.
func (w *Window) growsLocked(epoch int) bool { return w.cfg.More != nil && !w.growth.whole[epoch] }

// moreWantedLocked returns the epoch whose next item is needed, because all known positions are
// reserved. -1: none.
func (w *Window) moreWantedLocked() int {
	if w.cfg.More == nil || w.growth.asking || w.failed != nil {
		return -1
	}
	if _, ok := w.nextLocked(); ok {
		return -1
	}
	order, known := w.orders[w.next.epoch]
	if !known || w.next.pos < len(order) || !w.growsLocked(w.next.epoch) {
		return -1
	}
	if w.growth.later && w.low.before(w.next) {
		return -1
	}
	return w.next.epoch
}

// askMore gets the next item of an epoch from Config.More, which may block.
func (w *Window) askMore(ctx context.Context, epoch int) {
	item, err := w.cfg.More(ctx, epoch)
	if err == nil {
		err = item.check()
	}
	if err == nil && item.room() > w.cfg.Size-w.cfg.leastOwn() {
		err = &BudgetError{Have: w.cfg.Size, Need: item.room() + w.cfg.leastOwn(), Comfortable: 2*int64(w.cfg.Parallel)*item.room() + w.cfg.leastOwn()}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.growth.asking, w.growth.later = false, errors.Is(err, ErrLater)
	switch {
	case err == nil:
		w.grown = append(w.grown, item)
		w.orders[epoch] = append(w.orders[epoch], int32(w.itemCountLocked()-1)) // limited by memory
	case errors.Is(err, io.EOF):
		w.growth.whole[epoch] = true
	case w.growth.later, ctx.Err() != nil:
	case w.failed == nil:
		w.failed = err
	}
	w.note()
}

package window

import (
	"context"
	"errors"
	"io"
)

// calls is which calls of Config.Order and Config.More run; at most one of each. The window's mutex
// guards it.
type calls struct {
	ordering bool // Order computes an order
	asking   bool // More waits for the next item
	later    bool // More returned ErrLater, and not all items are finished yet
}

// moreWantedLocked returns the epoch whose next item is needed, because all known positions are
// reserved. -1: none.
func (w *Window) moreWantedLocked() int {
	if w.cfg.More == nil || w.calls.asking || w.life.failed != nil {
		return -1
	}
	if _, ok := w.nextLocked(); ok {
		return -1
	}
	if !w.progress.exhausted() || w.calls.later && w.progress.low.before(w.progress.next) {
		return -1
	}
	return w.progress.next.epoch
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
	w.calls.asking, w.calls.later = false, errors.Is(err, ErrLater)
	switch {
	case err == nil:
		w.progress.grow(epoch, w.items.add(item))
	case errors.Is(err, io.EOF):
		w.progress.whole[epoch] = true
	case w.calls.later, ctx.Err() != nil:
	default:
		w.life.fail(err)
	}
	w.note()
}

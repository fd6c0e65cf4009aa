package window

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// An unconfirmed plan delivers everything, but not the end, by whichever way a reader asks for it.
func TestUnconfirmedWindowHoldsTheEnd(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(3, 10), Size: 100, Epochs: 2, Unconfirmed: true})
		b.idle()
		for epoch := range 2 {
			for range 3 {
				b.ok(b.Ack(b.must(b.lease("a")).ID))
				b.idle()
			}
			_, err := b.lease("a")
			if held := epoch == 1; held == isEnd(err, epoch) {
				t.Errorf("epoch %d: got %v, want its end only if another epoch follows", epoch, err)
			}
		}
		_, err := b.Lease(context.Background(), LeaseRequest{Reader: "b", EndEarly: true})
		if waited, is := errors.AsType[*WaitError](err); !is || waited.Cause != CauseBackend {
			t.Errorf("early: got %v, want to wait for the backend", err)
		}
		if s := b.Status(); s.Done || slices.Contains(b.ls("ready"), "e0001.END") {
			t.Error("the last epoch has ended")
		}
		b.Confirm()
		b.idle()
		if _, err := b.lease("a"); !isEnd(err, 1) || !b.Status().Done {
			t.Errorf("confirmed: got %v, want the end of epoch 1", err)
		}
	})
}

// A reader that asks for an early end must not get it while the list may have more.
func TestUnconfirmedWindowHoldsTheEarlyEnd(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(1, 10), Size: 100, Epochs: 1, Unconfirmed: true})
		b.idle()
		b.must(b.lease("a"))
		early := LeaseRequest{Reader: "b", EndEarly: true}
		if _, err := b.Lease(context.Background(), early); !waits(err) {
			t.Errorf("got %v, want to wait", err)
		}
		b.Confirm()
		_, err := b.Lease(context.Background(), early)
		if end, is := errors.AsType[*EndError](err); !is || !end.Early {
			t.Errorf("confirmed: got %v, want an early end", err)
		}
	})
}

// An object that the source does not have any more is no failure of the plan before it is known
// whether the plan is the right one.
func TestUnconfirmedWindowFailsForNoObject(t *testing.T) {
	for _, cause := range []error{ErrGone, ErrCorrupt} {
		virtual(t, func(t *testing.T) {
			gone := fmt.Errorf("s0: %w", cause)
			b := newBench(t, Config{Items: items(1, 10), Size: 100, Epochs: 1, Unconfirmed: true})
			b.fetcher.script = map[int][]error{0: {gone, gone, gone, gone, gone}}
			b.idle()
			for range 6 {
				b.advance(longestPause)
			}
			if _, err := b.lease("a"); err != nil {
				t.Errorf("%v: got %v, want the shard once the source has it", cause, err)
			}
		})
		virtual(t, func(t *testing.T) {
			gone := fmt.Errorf("s0: %w", cause)
			b := newBench(t, Config{Items: items(1, 10), Size: 100, Epochs: 1, Unconfirmed: true})
			b.fetcher.script = map[int][]error{0: {gone, gone, gone, gone, gone}}
			b.idle()
			b.Confirm()
			for range 6 {
				b.advance(longestPause)
			}
			if _, err := b.lease("a"); !errors.Is(err, cause) {
				t.Errorf("confirmed: got %v, want %v", err, cause)
			}
		})
	}
}

func TestReopenEndsLeasesAndKeepsThePosition(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(3, 10), Size: 100, Epochs: 1, Unconfirmed: true})
		b.idle()
		b.ok(b.Ack(b.must(b.lease("a")).ID))
		l := b.must(b.lease("a"))
		b.Reopen()
		b.Reopen() // without effect
		if _, err := b.lease("a"); !errors.Is(err, ErrRewound) {
			t.Errorf("got %v, want ErrRewound", err)
		}
		if err := b.Ack(l.ID); !errors.Is(err, ErrNoLease) {
			t.Errorf("got %v, want ErrNoLease", err)
		}
		b.crash()
		b.idle()
		if l := b.must(b.lease("a")); l.Pos != 1 {
			t.Errorf("got %+v, want position 1", l)
		}
	})
}

func (m *model) confirm() {
	m.cfg.Unconfirmed = false
	m.Confirm()
}

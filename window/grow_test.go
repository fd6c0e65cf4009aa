package window

import (
	"context"
	"errors"
	"io"
	"testing"
)

// growing returns a window whose More returns the items of script for an epoch, one by one.
func growing(t *testing.T, cfg Config, script map[int][]any) *bench {
	t.Helper()
	cfg.Epochs, cfg.Order = 2, func(int) Order { return Sequence(0) }
	var b *bench
	cfg.More = func(_ context.Context, epoch int) (Item, error) {
		if len(script[epoch]) == 0 {
			return Item{}, io.EOF
		}
		next := script[epoch][0]
		script[epoch] = script[epoch][1:]
		if err, is := next.(error); is {
			return Item{}, err
		}
		b.fetcher.items = append(b.fetcher.items, next.(Item))
		return next.(Item), nil
	}
	b = newBench(t, cfg)
	b.idle()
	return b
}

func TestGrowingPlanStopsAtWindowSize(t *testing.T) {
	virtual(t, func(t *testing.T) {
		script := map[int][]any{0: {items(9, 10)[0], items(9, 10)[1], items(9, 10)[2], items(9, 10)[3]}, 1: {items(9, 10)[4]}}
		b := growing(t, Config{Size: 20}, script)
		if got := len(script[0]); got != 1 {
			t.Errorf("%d items are left, want 1: no more is asked for than one beyond the room", got)
		}
		for pos := range 4 {
			l := b.must(b.lease("a"))
			if l.Epoch != 0 || l.Pos != pos || l.Samples != pos {
				t.Errorf("got %+v, want position %d", l, pos)
			}
			b.ok(b.Ack(l.ID))
			b.idle()
		}
		if _, err := b.lease("a"); !isEnd(err, 0) {
			t.Errorf("got %v, want the end of epoch 0", err)
		}
		b.ok(b.Ack(b.must(b.lease("a")).ID))
		b.idle()
		if _, err := b.lease("a"); !isEnd(err, 1) {
			t.Errorf("got %v, want the end of epoch 1", err)
		}
		if s := b.Status(); !s.Done || s.Peak > 20 {
			t.Errorf("done %v, peak %d", s.Done, s.Peak)
		}
	})
}

// With EndEarly, a worker must not receive the end while More may still return items. It must
// receive it once More waits for the other readers.
func TestGrowingPlanReportsEndEarlyOnlyIfMoreWaits(t *testing.T) {
	virtual(t, func(t *testing.T) {
		all := items(3, 10)
		b := growing(t, Config{Size: 20}, map[int][]any{0: {all[0], ErrLater, all[1]}})
		l := b.must(b.lease("a"))
		early := LeaseRequest{Reader: "b", EndEarly: true}
		_, err := b.Lease(context.Background(), early)
		if end, is := errors.AsType[*EndError](err); !is || !end.Early {
			t.Errorf("got %v, want an early end", err)
		}
		b.ok(b.Ack(l.ID))
		b.idle()
		if l = b.must(b.lease("a")); l.Epoch != 0 || l.Pos != 1 {
			t.Errorf("got %+v, want position 1 of epoch 0", l)
		}
		b.ok(b.Ack(l.ID))
		b.idle()
		if _, err := b.lease("a"); !isEnd(err, 0) {
			t.Errorf("got %v, want the end", err)
		}

		b = growing(t, Config{Size: 10, Waits: func() Cause { return CauseNetwork }}, map[int][]any{0: {all[0], all[1], all[2]}})
		b.async = true
		b.ok(b.Ack(b.must(b.lease("a")).ID))
		for !b.calls.asking {
			b.step()
		}
		b.arrive(0) // the fetch of the next item; the call of More still runs
		b.step()
		b.must(b.lease("a"))
		if _, err := b.Lease(context.Background(), early); !isWait(err, CauseNetwork) {
			t.Errorf("got %v, want a wait for what More waits for", err)
		}
	})
}

func TestGrowingPlanChecksNewItems(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		next any
		want string
	}{
		{broken, "broken"},
		{Item{Name: "a", Size: 30}, "a window of 20 bytes is too small: at least 30 are needed, and 240 are recommended"},
		{Item{Name: "a/b"}, `"a/b" cannot be an item's name: 1 to 200 bytes without "/"`},
	} {
		virtual(t, func(t *testing.T) {
			b := growing(t, Config{Size: 20}, map[int][]any{0: {items(1, 10)[0], tt.next}})
			if _, err := b.lease("a"); err == nil || err.Error() != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

// After a restart, Order returns the items that More returned before.
func TestGrowingPlanResumesAfterKill(t *testing.T) {
	virtual(t, func(t *testing.T) {
		all := items(4, 10)
		script := map[int][]any{0: {all[0], all[1], all[2], all[3]}}
		b := growing(t, Config{Size: 20}, script)
		b.ok(b.Ack(b.must(b.lease("a")).ID))
		held := b.must(b.lease("a"))
		b.idle()
		b.cfg.Items = all[:3]
		b.cfg.Order = func(epoch int) Order {
			if epoch == 0 {
				return Indexes{0, 1, 2}
			}
			return Sequence(0)
		}
		script[0] = []any{all[3]}
		b.crash()
		b.idle()
		if _, err := b.Attach(held.ID, true); err != nil {
			t.Errorf("the lease is gone: %v", err)
		}
		b.ok(b.Ack(held.ID))
		b.idle()
		for _, want := range []int{2, 3} {
			l := b.must(b.lease("a"))
			if l.Pos != want {
				t.Errorf("got position %d, want %d", l.Pos, want)
			}
			b.ok(b.Ack(l.ID))
			b.idle()
		}
		if _, err := b.lease("a"); !isEnd(err, 0) {
			t.Errorf("got %v, want the end", err)
		}
	})
}

func TestGrowingPlanStartsAtAnyEpoch(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := growing(t, Config{Size: 20, First: 1}, map[int][]any{0: {items(2, 10)[0]}, 1: {items(2, 10)[1]}})
		l := b.must(b.lease("a"))
		if l.Epoch != 1 {
			t.Errorf("got epoch %d, want 1", l.Epoch)
		}
		b.ok(b.Ack(l.ID))
		b.idle()
		if _, err := b.lease("a"); !isEnd(err, 1) {
			t.Errorf("got %v, want the end of epoch 1", err)
		}
	})
}

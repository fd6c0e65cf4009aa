package window

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stager-dev/stager/window/disk"
)

// A window with the items of one epoch in memory goes from epoch to epoch, back by a cursor, and on, and
// delivers what one delivers that keeps all.
func TestForgottenItemsAreNotNeeded(t *testing.T) {
	const n = 10
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(n, 10), Size: 40, Epochs: 3, Order: func(epoch int) Order { return permuted(1, epoch, n) }})
		b.idle()
		next := func() Lease {
			t.Helper()
			b.idle()
			l := b.must(b.lease("r"))
			if item := permuted(1, l.Epoch, n).At(l.Pos); l.Name != listOf(b.cfg)[item].Name {
				t.Errorf("position %d of epoch %d is %s, want %s", l.Pos, l.Epoch, l.Name, listOf(b.cfg)[item].Name)
			}
			return l
		}
		for range n - 2 {
			b.ok(b.Ack(next().ID))
		}
		early, late := next(), next()
		b.idle()
		if got := b.progress.orders[0].Order.(owned).Order; !b.progress.known(1) || got.(rest).from < n/2 {
			t.Fatalf("got %+v, want the rest of epoch 0, and epoch 1", got)
		}
		at := b.Cursor()
		b.ok(b.Return(early.ID))
		b.ok(b.Ack(next().ID)) // the same again
		b.ok(b.Ack(late.ID))
		if got := b.Cursor(); got.Epoch != 1 {
			t.Errorf("got %+v, want epoch 1", got)
		}
		if _, err := b.lease("r"); !isEnd(err, 0) {
			t.Errorf("got %v, want the end of epoch 0", err)
		}
		if got := b.readAll(1); got != n {
			t.Errorf("%d positions of epoch 1 were delivered, want %d", got, n)
		}
		b.idle()
		before := b.Cursor()
		b.ok(b.Rewind([]Cursor{at}, func(int) int { return 0 }))
		b.ok(b.Close())
		if got := b.Cursor(); !reflect.DeepEqual(got, before) {
			t.Errorf("the closed window has the cursor %+v, want %+v", got, before)
		}
		b.open()
		b.idle()
		for range 2 {
			b.ok(b.Ack(next().ID))
		}
		if got := b.Cursor(); got.Epoch != 1 || len(got.Finished) > 0 {
			t.Errorf("got %+v, want the beginning of epoch 1", got)
		}
	})
}

// The order of the next epoch takes four bytes for each item of the plan, for hours in which nothing
// needs it: 40 MB for ten million items.
func TestNextOrderIsComputedWhenItIsNeeded(t *testing.T) {
	for reuse, want := range map[Reuse][]int{ReuseNone: {0}, ReusePin: {0, 1}} {
		virtual(t, func(t *testing.T) {
			var asked []int
			cfg := Config{Items: items(6, 10), Size: 20, Epochs: 3, Reuse: reuse}
			cfg.Order = func(epoch int) Order {
				asked = append(asked, epoch)
				return permuted(1, epoch, 6)
			}
			b := newBench(t, cfg)
			b.idle()
			if !slices.Equal(asked, want) {
				t.Errorf("reuse %s: the orders of %v are computed at the start, want %v", reuse, asked, want)
			}
			for epoch := range 3 {
				if got := b.readAll(epoch); got != 6 {
					t.Errorf("reuse %s, epoch %d: %d positions were delivered, want 6", reuse, epoch, got)
				}
			}
			if want := []int{0, 1, 2}; !slices.Equal(asked, want) {
				t.Errorf("reuse %s: the orders of %v were computed, want each once: %v", reuse, asked, want)
			}
		})
	}
}

// A process is killed after each step of an epoch and the next one. Whatever the files and the
// journal know of the next epoch, its order is there to recognize it: each position is delivered
// and acknowledged once.
func TestNextOrderIsKnownAfterARestart(t *testing.T) {
	for acks := range 9 {
		virtual(t, func(t *testing.T) {
			b := newBench(t, Config{
				Items: items(4, 10), Size: 80, Epochs: 2, AnyOrder: true,
				Order: func(epoch int) Order { return permuted(1, epoch, 4) },
			})
			done := map[seq]bool{}
			deliver := func() bool {
				b.idle()
				l, err := b.lease("r")
				if err != nil {
					return false
				}
				a := seq{l.Epoch, l.Pos}
				if done[a] {
					t.Errorf("after %d acknowledgements: position %v is delivered twice", acks, a)
				}
				done[a] = true
				b.ok(b.Ack(l.ID))
				return true
			}
			for range acks {
				if !deliver() { // the end of the epoch
					deliver()
				}
			}
			b.idle()
			fetched := append(b.ls("ready"), b.ls(disk.Private+"/whole")...)
			b.crash()
			if got := append(b.ls("ready"), b.ls(disk.Private+"/whole")...); !slices.Equal(got, fetched) {
				t.Errorf("after %d acknowledgements: the files are %v after the restart, want %v", acks, got, fetched)
			}
			for range 20 {
				deliver()
			}
			if len(done) != 8 {
				t.Errorf("after %d acknowledgements: %d positions were delivered, want 8", acks, len(done))
			}
		})
	}
}

// Other nodes may have finished positions of the next epoch, which a cursor of all nodes holds. The
// window that continues there reports them at once, before it has fetched anything of that epoch.
func TestNextOrderIsKnownAfterARewind(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(4, 10), Size: 20, Epochs: 2, Order: func(epoch int) Order { return permuted(1, epoch, 4) }})
		at := Cursor{Manifest: b.cfg.Manifest, Part: b.cfg.Part, Epoch: 0, Finished: map[int][]Span{1: {{2, 3}}}}
		b.ok(b.Rewind([]Cursor{at}, func(int) int { return 0 }))
		b.ok(b.Close())
		b.open()
		if got := b.Cursor(); !slices.Equal(got.Finished[1], at.Finished[1]) {
			t.Errorf("the cursor after the rewind says that %v of epoch 1 is finished, want %v", got.Finished[1], at.Finished[1])
		}
	})
}

// While the order of the next epoch was being computed, a reader that waited for the last shards of
// this epoch, which others held, was reported to wait for the store.
func TestNextOrderIsNotWhatReadersWaitFor(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(1, 10), Size: 20, Epochs: 2})
		b.async = true
		b.step()
		if len(b.pending) != 2 || !b.calls.ordering {
			t.Fatalf("%d pieces of work are under way (ordering: %t), want the fetch and the order of epoch 1", len(b.pending), b.calls.ordering)
		}
		b.arrive(0) // the fetch
		b.step()
		b.must(b.lease("one"))
		if _, err := b.lease("two"); !b.calls.ordering || !isWait(err, CauseReaders) {
			t.Errorf("got %v (ordering: %t), want to wait for readers while the order is computed", err, b.calls.ordering)
		}
	})
}

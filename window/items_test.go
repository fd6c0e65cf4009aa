package window

import (
	"errors"
	"testing"

	"github.com/stager-dev/stager/window/disk"
)

// failing are items of which one cannot be read once fails is set.
type failing struct {
	List
	item  int
	fails error
}

func (f *failing) Item(i int) (Item, error) {
	if i == f.item && f.fails != nil {
		return Item{}, f.fails
	}
	return f.List.Item(i)
}

// An item that cannot be read ends Run. It never becomes another item, and no file is removed.
func TestItemsThatCannotBeReadEndRun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		damaged := errors.New("the list is damaged")
		list := &failing{List: items(4, 10), item: 3}
		b := newBench(t, Config{Items: list, Size: 20, Epochs: 1})
		b.fetcher.items = list.List
		list.fails = damaged
		b.idle()
		b.ok(b.Ack(b.must(b.lease("a")).ID))
		b.idle()
		if !errors.Is(b.failed, damaged) {
			t.Errorf("Run ends with %v, want %v", b.failed, damaged)
		}
	})
}

// Files without a name are part of what the window takes of its size.
func TestScratchCountsTowardSize(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const scratch = 3 * disk.Block
		cfg := Config{Dir: t.TempDir(), Items: items(2, 10), Size: ownAtLeast + scratch + 10, CountOwn: true, Scratch: scratch, Epochs: 1, Fetcher: &fake{}}
		w, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.Status().Used; got < scratch {
			t.Errorf("%d bytes are used, want %d and more", got, scratch)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		cfg.Size--
		var small *BudgetError
		if _, err := New(cfg); !errors.As(err, &small) || small.Need != ownAtLeast+scratch+10 {
			t.Errorf("one byte less: got %v, want a BudgetError with a need of %d", err, ownAtLeast+scratch+10)
		}
	})
}

package window

import (
	"errors"
	"reflect"
	"slices"
	"strings"
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
		if !errors.Is(b.life.failed, damaged) {
			t.Errorf("Run ends with %v, want %v", b.life.failed, damaged)
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

// A window that is accepted delivers its largest item. One of 8 MiB accepted an item for which its
// journal left no room, and waited forever.
func TestLargestAcceptedItemFits(t *testing.T) {
	virtual(t, func(t *testing.T) {
		for _, size := range []int64{256 << 10, 8 << 20, 100 << 20, 4 << 30} {
			var small *BudgetError
			cfg := Config{Dir: t.TempDir(), Items: items(1, size), Size: size, CountOwn: true, Epochs: 1, Fetcher: &fake{}}
			if _, err := New(cfg); !errors.As(err, &small) {
				t.Fatalf("got %v, want a BudgetError", err)
			}
			largest := size - (small.Need - size)
			cfg.Items = items(1, largest)
			w, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if got := w.ItemLimit(); got < largest {
				t.Errorf("a window of %d bytes has room for an item of %d, want %d", size, got, largest)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// Files of the caller are part of what the window takes of its size.
func TestStateCountsTowardSize(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var state int64
		cfg := Config{Dir: t.TempDir(), Items: items(1, 10), Size: 1 << 20, CountOwn: true, Epochs: 1, Fetcher: &fake{}, State: func() int64 { return state }}
		w, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		before := w.ItemLimit()
		state = 5 * disk.Block
		if got, want := w.ItemLimit(), before-state; got != want {
			t.Errorf("with a state of %d bytes an item may take %d, want %d", state, got, want)
		}
	})
}

// A window with an Extent does not read its items when it opens. The Extent is that of its items, or
// New fails.
func TestExtentSparesReadingAllItems(t *testing.T) {
	list := List{
		{Name: "a", Size: 30, Beside: 5, Samples: 7},
		{Name: "b", Size: 10, Beside: 90},
		{Name: "c", Size: 20, Samples: 1},
	}
	extentOf := func(reuse Reuse, list List) *Extent {
		x := NewExtent(reuse)
		for _, item := range list {
			x.Add(item)
		}
		return x
	}
	unread := errors.New("the item is read")
	for _, reuse := range []Reuse{"", ReuseNone, ReuseFit} {
		config := func(x *Extent, items Items) *Config {
			return &Config{Input: "train", Items: items, Extent: x, Reuse: reuse, Size: 1 << 20, Epochs: 1, Fetcher: &fake{}}
		}
		own := config(nil, list)
		if err := own.defaults(); err != nil {
			t.Fatal(err)
		}
		given := config(extentOf(reuse, list), &failing{List: list, item: 1, fails: unread})
		if err := given.defaults(); err != nil {
			t.Errorf("reuse %q: got %v, want nil: no item is read", reuse, err)
		}
		own.Extent.expect = 0
		if !reflect.DeepEqual(given.Extent, own.Extent) {
			t.Errorf("reuse %q: got the extent %+v, want %+v", reuse, given.Extent, own.Extent)
		}
		other := ReuseFit
		if reuse == other {
			other = ReuseNone
		}
		for what, x := range map[string]*Extent{"one item is missing": extentOf(reuse, list[:2]), "another reuse": extentOf(other, list)} {
			if err := config(x, list).defaults(); err == nil || !strings.Contains(err.Error(), "the extent of") {
				t.Errorf("reuse %q, %s: got %v, want an error about the extent", reuse, what, err)
			}
		}
		bad := append(slices.Clone(list), Item{Name: "x/y"}, Item{Name: "z", Size: -1})
		err1, err2 := config(nil, bad).defaults(), config(extentOf(reuse, bad), bad).defaults()
		if err1 == nil || err2 == nil || err1.Error() != err2.Error() || !strings.Contains(err1.Error(), "x/y") {
			t.Errorf("reuse %q: invalid items: got %v and %v, want the same error about the first", reuse, err1, err2)
		}
	}
}

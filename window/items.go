package window

import (
	"fmt"
	"math"
	"strings"
)

// Item is one shard of the plan.
type Item struct {
	Name    string // a safe file name of at most 200 bytes
	Size    int64  // in bytes, on disk; of a tree, the sum of disk.Room of its files
	Tree    bool   // a directory of files; requires a TreeFetcher
	Beside  int64  // bytes on disk beyond Size: the rest of its last block, directories, names
	UpTo    bool   // a tree may take less than Size; the difference is released once it is fetched
	Samples int    // 0 if unknown
	Digest  string // such as "crc64nvme:…"; empty if unknown before the fetch
	Version string // of the source; a fetch resumes only with the same version
}

// Items are the shards of a plan, by index. There may be millions, so that a window reads them one
// by one when it needs them. The methods must be safe for concurrent use. An error of Item ends Run.
type Items interface {
	Len() int
	Item(i int) (Item, error)
}

// List is Items in memory.
type List []Item

// Len implements [Items].
func (l List) Len() int { return len(l) }

// Item implements [Items].
func (l List) Item(i int) (Item, error) { return l[i], nil }

// room returns the number of bytes that an item takes of the budget.
func (i Item) room() int64 { return i.Size + i.Beside }

func (i Item) check() error {
	switch {
	case i.Name == "" || len(i.Name) > 200 || strings.ContainsAny(i.Name, "/\x00\n"):
		return fmt.Errorf("%q cannot be an item's name: 1 to 200 bytes without \"/\"", i.Name)
	case i.Size < 0 || i.Beside < 0:
		return fmt.Errorf("item %s has an invalid size: %d bytes and %d extra bytes", i.Name, i.Size, i.Beside)
	}
	return nil
}

// Extent is what a window needs to know of all its items together. Who reads all items anyway, such as
// a listing, adds them to one, so that New does not read them once more.
type Extent struct {
	items   int
	expect  int     // number of items, if it is known
	size    int64   // largest Size
	room    int64   // largest room
	total   int64   // sum of the rooms
	reuse   bool    // rooms are needed
	rooms   []int64 // by item; nil without reuse
	samples []int32 // by item; nil unless some are known
	tree    string  // name of the first tree; "" without
	err     error   // of the first invalid item
}

// NewExtent returns the Extent of no items, for a window with a Config.Reuse.
func NewExtent(reuse Reuse) *Extent {
	return &Extent{reuse: reuse != "" && reuse != ReuseNone}
}

// Add adds the next item. Items are added in their order. New returns an error if one was invalid.
func (x *Extent) Add(item Item) {
	if x.err == nil {
		x.err = item.check()
	}
	if x.err != nil {
		return
	}
	room := item.room()
	x.size, x.room, x.total = max(x.size, item.Size), max(x.room, room), x.total+room
	if item.Tree && x.tree == "" {
		x.tree = item.Name
	}
	if item.Samples > 0 && x.samples == nil {
		x.samples = make([]int32, x.items, max(x.items+1, x.expect))
	}
	if x.samples != nil {
		x.samples = append(x.samples, int32(min(item.Samples, math.MaxInt32)))
	}
	if x.reuse {
		x.rooms = append(x.rooms, room)
	}
	x.items++
}

// measureItems checks the items, and sets Extent unless the caller did.
func (c *Config) measureItems() error {
	n := c.Items.Len()
	if n > math.MaxInt32 {
		return fmt.Errorf("input %s has %d items; at most %d are supported: select fewer by include and exclude", c.Input, n, math.MaxInt32)
	}
	if c.Extent == nil {
		c.Extent = NewExtent(c.Reuse)
		c.Extent.expect = n
		for i := range n {
			item, err := c.Items.Item(i)
			if err != nil {
				return err
			}
			c.Extent.Add(item)
		}
	}
	x := c.Extent
	_, trees := c.Fetcher.(TreeFetcher)
	switch {
	case x.err != nil:
		return x.err
	case x.items != n || x.reuse != (c.Reuse != ReuseNone):
		return fmt.Errorf("the extent of %d items with reuse %t is not that of the %d items with reuse %s", x.items, x.reuse, n, c.Reuse)
	case x.tree != "" && !trees:
		return fmt.Errorf("item %s is a directory, and the Fetcher does not implement TreeFetcher", x.tree)
	}
	return nil
}

// itemTable is the items of the plan: those of Config.Items, and then those from Config.More. The
// window's mutex guards it.
type itemTable struct {
	input  string // its name, for errors
	listed Items
	grown  []Item
	// last is the item that was read last: the next position is looked at again and again while there
	// is no room for it.
	last struct {
		index int
		item  Item
		some  bool
	}
}

// get returns an item.
func (t *itemTable) get(i int) (Item, error) {
	if n := t.listed.Len(); i >= n {
		return t.grown[i-n], nil
	}
	if t.last.some && t.last.index == i {
		return t.last.item, nil
	}
	item, err := t.listed.Item(i)
	if err != nil {
		return Item{}, fmt.Errorf("input %s: %w", t.input, err)
	}
	t.last.index, t.last.item, t.last.some = i, item, true
	return item, nil
}

// add adds the next item from Config.More, and returns its index.
func (t *itemTable) add(item Item) int {
	t.grown = append(t.grown, item)
	return t.len() - 1
}

func (t *itemTable) len() int { return t.listed.Len() + len(t.grown) }

// nextItemLocked returns the item at a position that is not reserved yet; the zero Item if it
// cannot be read, which ends Run once the position is reserved.
func (w *Window) nextItemLocked(a seq) Item {
	item, _ := w.items.get(w.progress.item(a))
	return item
}

package window

import (
	"container/heap"
	"slices"
)

// offers holds the published entries that can be delivered, lowest first. Entries that are no longer
// Ready may remain, but first never returns one. The window's mutex guards it.
type offers struct{ heap readyHeap }

// add adds an entry. ready is the number of Ready entries in the window: with many more entries than
// that, those that are not Ready are removed, because readers that use the file protocol never call
// first.
func (o *offers) add(e *entry, ready int) {
	if len(o.heap) > 2*ready+64 {
		o.heap = slices.DeleteFunc(o.heap, func(e *entry) bool { return e.state != Ready })
		heap.Init(&o.heap)
	}
	heap.Push(&o.heap, e)
}

// first returns the lowest Ready entry, or nil.
func (o *offers) first() *entry {
	for len(o.heap) > 0 {
		if e := o.heap[0]; e.state == Ready {
			return e
		}
		heap.Pop(&o.heap)
	}
	return nil
}

// pop removes the entry that first returned.
func (o *offers) pop() { heap.Pop(&o.heap) }

// readyHeap is a min-heap of entries.
type readyHeap []*entry

func (h readyHeap) Len() int           { return len(h) }
func (h readyHeap) Less(i, j int) bool { return h[i].before(h[j].seq) }
func (h readyHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *readyHeap) Push(x any)        { *h = append(*h, x.(*entry)) }
func (h *readyHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}

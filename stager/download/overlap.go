package download

import (
	"context"
	"io"
	"sync"

	"github.com/stager-dev/stager/backends"
)

// How much is fetched at most before it is known that nothing is refused: so much is
// fetched for nothing when something is.
const (
	aheadObjects = 16 << 10
	aheadBytes   = 4 << 30
)

// listingOverlap is what a prefetch fetches while it still lists its source. Only the end of
// the list tells whether it is refused, and then it leaves everything as it was. So what
// is whole and verified before that waits at a gate, under .stager/incoming, for its name:
//
//	survey ─ spool ─ feed ─┬─ fetch, verify ─┬─ gate ─ rename, record
//	                       └─ …              └─ …
//
// It takes the first objects of the spool, as far as the constants above and half the
// disk's room go; the rest comes when the gate is open. Where an earlier run left files
// to be resumed there is none, so that a refusal costs nothing of what that brought; and
// it ends at an archive that becomes a directory, since nobody knows what comes out of it, and
// at a file that is there and must be read.
type listingOverlap struct {
	objects int   // it may take
	bytes   int64 // the same
	barrier chan struct{}

	// taking is held, by many, while space on the disk is taken and counted; and by one
	// while that is compared with what is free.
	taking sync.RWMutex

	mu        sync.Mutex // guards all below
	open      bool       // the gate
	cancelled bool       // it will stay shut
	begun     int        // objects of the spool
	space     int64      // that they were to take
	taken     int64      // that they have taken
	waiting   []sealed   // by place in the spool
}

// sealed is a file at the gate: what it was verified by, and its inode. Of an object that does
// not wait how is "".
type sealed struct {
	how string
	ino uint64
}

// newListingOverlap makes one for a disk with so many bytes free, or none.
func newListingOverlap(free int64, none bool) *listingOverlap {
	h := &listingOverlap{objects: aheadObjects, bytes: min(aheadBytes, free/2), barrier: make(chan struct{})}
	if none {
		h.objects = 0
	}
	return h
}

// enter waits until an object may be fetched, the next of the spool.
func (h *listingOverlap) enter(ctx context.Context, obj backends.Object) {
	h.mu.Lock()
	space := spaceOf(obj.Size)
	now := h.open || !h.cancelled && h.begun < h.objects && space <= h.bytes-h.space
	if now {
		h.begun++
		h.space += space
	}
	h.mu.Unlock()
	if !now {
		h.await(ctx)
	}
}

// await waits until the gate is open.
func (h *listingOverlap) await(ctx context.Context) {
	select {
	case <-h.barrier:
	case <-ctx.Done():
	}
}

// acquire runs a function that takes so many bytes of space.
func (h *listingOverlap) acquire(space int64, f func() error) error {
	h.taking.RLock()
	defer h.taking.RUnlock()
	if err := f(); err != nil {
		return err
	}
	h.count(space)
	return nil
}

// reservingWriter is a small file, which takes its space as it is written.
type reservingWriter struct {
	io.WriterAt
	head *listingOverlap
}

func (t reservingWriter) WriteAt(p []byte, off int64) (n int, err error) {
	err = t.head.acquire(spaceOf(int64(len(p))), func() error {
		n, err = t.WriterAt.WriteAt(p, off)
		return err
	})
	return n, err
}

// release runs a function that gives the space of a file back.
func (h *listingOverlap) release(size int64, f func() error) error {
	h.taking.RLock()
	defer h.taking.RUnlock()
	h.count(-spaceOf(size))
	return f()
}

func (h *listingOverlap) count(space int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken += space
}

// isOpen tells whether the gate is open.
func (h *listingOverlap) isOpen() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open
}

// wait has a sealed file wait at the gate; false when that is open.
func (h *listingOverlap) wait(place int, w sealed) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open {
		return false
	}
	for len(h.waiting) <= place {
		h.waiting = append(h.waiting, sealed{})
	}
	h.waiting[place] = w
	return true
}

// cancel hears that the prefetch will be refused.
func (h *listingOverlap) cancel() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cancelled = true
}

// pass opens the gate, and names those that waited.
func (p *run) pass() error {
	h := p.head
	h.mu.Lock()
	h.open = true
	h.mu.Unlock()
	close(h.barrier)
	place := 0
	for obj, err := range p.todo.all() {
		if place == len(h.waiting) {
			return nil
		}
		if err != nil {
			return local("the list of objects", err)
		}
		w := h.waiting[place]
		place++
		if w.how == "" {
			continue
		}
		now, err := p.dir.PublishSealed(obj.Key, obj.Key, obj.Size, w.ino, p.replaceable(obj.Object))
		if err != nil {
			return p.unpublished(obj.Key, err)
		}
		if err := p.note(obj.Object, w.how, now); err != nil {
			return err
		}
	}
	return nil
}

// undo removes all that was fetched, after those who fetched have ended.
func (p *run) undo() {
	place := 0
	for obj, err := range p.todo.all() {
		if place == p.head.begun {
			return
		}
		place++
		if err == nil {
			err = p.dir.Drop(obj.Key, obj.Size)
		}
		if err != nil {
			p.log.Warn("what was fetched before the refusal cannot be removed, the next run does", "error", err)
			return
		}
	}
}

// spaceOf is how much of a disk a file takes.
func spaceOf(size int64) int64 {
	const block = 4 << 10 // what a file system gives space in
	return (size + block - 1) / block * block
}

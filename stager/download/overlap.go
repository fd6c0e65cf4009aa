package download

import (
	"context"
	"io"
	"sync"

	"github.com/stager-dev/stager/backends"
)

// Limits of what is fetched before the listing has ended. If the prefetch is refused, this is wasted.
const (
	aheadObjects = 16 << 10
	aheadBytes   = 4 << 30
)

// listingOverlap fetches objects while the source is still being listed. Only the end of the
// listing decides whether the prefetch is refused, and a refusal must leave everything unchanged.
// So a file that is complete and verified before that waits at a barrier, under .stager/incoming,
// for its final name:
//
//	list ─ spool ─ feed ─┬─ fetch, verify ─┬─ barrier ─ rename, record
//	                     └─ …              └─ …
//
// It covers the first objects of the spool, up to the constants above and half of the free disk
// space; the others follow when the barrier is open. There is no overlap if an earlier run left
// files to resume, so that a refusal does not discard their bytes. It ends at an archive to be
// unpacked, since the size of its contents is unknown, and at an existing file that must be read.
type listingOverlap struct {
	objects int   // limit
	bytes   int64 // limit
	barrier chan struct{}

	// taking is read-locked while disk space is used and counted, and write-locked while the count
	// is compared with the free space.
	taking sync.RWMutex

	mu        sync.Mutex // guards all below
	open      bool       // state of the barrier
	cancelled bool       // it will never open
	begun     int        // objects of the spool that were started
	space     int64      // bytes that they need
	taken     int64      // bytes that they have used
	waiting   []sealed   // by index in the spool
}

// sealed is a file at the barrier: how it was verified, and its inode. how is "" for an object that
// does not wait.
type sealed struct {
	how string
	ino uint64
}

// newListingOverlap returns the overlap for a disk with free bytes. With none it is disabled.
func newListingOverlap(free int64, none bool) *listingOverlap {
	h := &listingOverlap{objects: aheadObjects, bytes: min(aheadBytes, free/2), barrier: make(chan struct{})}
	if none {
		h.objects = 0
	}
	return h
}

// enter waits until the next object of the spool may be fetched.
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

// await waits until the barrier is open.
func (h *listingOverlap) await(ctx context.Context) {
	select {
	case <-h.barrier:
	case <-ctx.Done():
	}
}

// acquire calls f, which uses space bytes of disk.
func (h *listingOverlap) acquire(space int64, f func() error) error {
	h.taking.RLock()
	defer h.taking.RUnlock()
	if err := f(); err != nil {
		return err
	}
	h.count(space)
	return nil
}

// reservingWriter is a small file, which uses disk space as it is written.
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

// release calls f, which frees the disk space of a file.
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

// isOpen reports whether the barrier is open.
func (h *listingOverlap) isOpen() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open
}

// wait adds a sealed file to the barrier. It returns false if the barrier is open.
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

// cancel records that the prefetch will be refused.
func (h *listingOverlap) cancel() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cancelled = true
}

// pass opens the barrier and renames the waiting files into place.
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

// undo removes everything that was fetched. The workers must have stopped.
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
			p.log.Warn("cannot remove files fetched before the error, the next run removes them", "error", err)
			return
		}
	}
}

// spaceOf returns the disk space of a file.
func spaceOf(size int64) int64 {
	const block = 4 << 10 // allocation unit of a file system
	return (size + block - 1) / block * block
}

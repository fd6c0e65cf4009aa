package smb

import (
	"context"
	"os"
	"sync"

	smb2 "github.com/cloudsoda/go-smb2"
)

// handle is an open file that several goroutines use and that any may retire; it is
// closed when the last of them is done. While it is open, the server lets nobody
// remove the file, which is why the Backend knows all of them.
type handle struct {
	b    *Backend
	s    *session
	key  string
	file *smb2.File

	mu      sync.Mutex // guards all below
	users   int
	retired bool
	closed  chan struct{}
}

// openHandle opens a file. One that it makes it removes again if nobody waits for it
// any more.
func (b *Backend) openHandle(ctx context.Context, s *session, key string, flag int) (h *handle, err error) {
	err = patiently(ctx, busy, func() error {
		h, err = call(ctx, s, func(share *smb2.Share) (*handle, error) {
			f, err := share.OpenFile(key, flag, 0o666)
			if err != nil {
				return nil, err
			}
			return b.keep(&handle{b: b, s: s, key: key, file: f, closed: make(chan struct{})}), nil
		}, func(h *handle) {
			h.retire()
			if flag&os.O_CREATE != 0 && h.wait(s.ctx) == nil {
				_ = s.do(func(share *smb2.Share) error { return share.Remove(key) }) // it is empty, and no listing shows it
			}
		})
		return err
	})
	return h, err
}

func (b *Backend) keep(h *handle) *handle {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.handles[h.key] == nil {
		b.handles[h.key] = make(map[*handle]bool)
	}
	b.handles[h.key][h] = true
	return h
}

// letGo retires all handles of a key and waits until they are closed.
func (b *Backend) letGo(ctx context.Context, key string) error {
	b.mu.Lock()
	var all []*handle
	for h := range b.handles[key] {
		all = append(all, h)
	}
	b.mu.Unlock()
	for _, h := range all {
		h.retire()
	}
	for _, h := range all {
		if err := h.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// exclusive keeps those out who would open a file that is about to be removed or replaced.
type exclusive struct {
	shut int           // how often
	open chan struct{} // closed when it is not any more
}

// shut closes the gate of a key; what it returns opens it.
func (b *Backend) shut(key string) (open func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.gates[key]
	if g == nil {
		g = &exclusive{open: make(chan struct{})}
		b.gates[key] = g
	}
	g.shut++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if g.shut--; g.shut == 0 {
			delete(b.gates, key)
			close(g.open)
		}
	}
}

// enter waits until the gate of a key is open.
func (b *Backend) enter(ctx context.Context, key string) error {
	b.mu.Lock()
	g := b.gates[key]
	b.mu.Unlock()
	if g == nil {
		return nil
	}
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// use tells whether the file may be used; done must follow.
func (h *handle) use() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.retired || !h.s.alive() {
		return false
	}
	h.users++
	return true
}

func (h *handle) done() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users--
	if h.retired && h.users == 0 {
		go h.close()
	}
}

// retire closes the file as soon as nobody uses it.
func (h *handle) retire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.retired {
		return
	}
	h.retired = true
	if h.users == 0 {
		go h.close()
	}
}

func (h *handle) close() {
	_ = h.s.do(func(*smb2.Share) error { return h.file.Close() }) // what was written is flushed before
	h.b.mu.Lock()
	delete(h.b.handles[h.key], h)
	if len(h.b.handles[h.key]) == 0 {
		delete(h.b.handles, h.key)
	}
	h.b.mu.Unlock()
	close(h.closed)
}

// wait returns when a retired file is closed.
func (h *handle) wait(ctx context.Context) error {
	select {
	case <-h.closed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stat describes the open file.
func (h *handle) stat(ctx context.Context) (*smb2.FileStat, error) {
	return call(ctx, h.s, func(*smb2.Share) (*smb2.FileStat, error) {
		if !h.use() {
			return nil, &lost{errRetired}
		}
		defer h.done()
		return statFile(h.file)
	}, nil)
}

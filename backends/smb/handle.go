package smb

import (
	"context"
	"os"
	"sync"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// handle is an open file that several goroutines share. Any of them may retire it; it is closed
// when the last user is done. The server does not remove a file while it is open, so the Backend
// keeps a list of all handles.
type handle struct {
	b    *Backend
	s    *session
	key  string
	file *smb2.File

	mu      sync.Mutex // guards the fields below
	users   int
	retired bool
	closed  chan struct{}
}

// openHandle opens a file. If it creates the file and the caller has left by then, it removes the
// file again.
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
			if flag&os.O_CREATE != 0 && h.wait(s.Context()) == nil {
				_ = s.Do(func() error { return s.share.Remove(key) }) // it is empty and omitted from listings
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

// exclusive blocks new openings of a file that is about to be removed or replaced.
type exclusive struct {
	shut int           // number of holders
	open chan struct{} // closed when shut becomes 0
}

// shut blocks new openings of a key until the returned function is called.
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

// enter waits while openings of a key are blocked.
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

// use reports whether the file can be used. After true, the caller must call done.
func (h *handle) use() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.retired || !h.s.Alive() {
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

// retire closes the file as soon as it has no users.
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
	_ = h.s.Do(h.file.Close) // written data was flushed before
	h.b.mu.Lock()
	delete(h.b.handles[h.key], h)
	if len(h.b.handles[h.key]) == 0 {
		delete(h.b.handles, h.key)
	}
	h.b.mu.Unlock()
	close(h.closed)
}

// wait waits until a retired file is closed.
func (h *handle) wait(ctx context.Context) error {
	select {
	case <-h.closed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stat returns the attributes of the open file.
func (h *handle) stat(ctx context.Context) (*smb2.FileStat, error) {
	return call(ctx, h.s, func(*smb2.Share) (*smb2.FileStat, error) {
		if !h.use() {
			return nil, &fileshare.LostError{Err: errRetired}
		}
		defer h.done()
		return statFile(h.file)
	}, nil)
}

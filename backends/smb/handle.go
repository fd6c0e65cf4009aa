package smb

import (
	"context"
	"io"
	"os"
	"sync"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// handle is an open file that several goroutines share. Any of them may close it; it is closed
// when the last user is done. The server does not remove a file while it is open, so the Backend
// keeps a list of all handles.
type handle struct {
	b    *Backend
	s    *session
	key  string
	file openFile

	mu      sync.Mutex // guards the fields below
	users   int
	closing bool // it is closed as soon as it has no users
	closed  chan struct{}
	flushed bool  // all that was written
	refused error // the server's response to the close
}

// openFile is what a handle needs of an [smb2.File].
type openFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Stat() (os.FileInfo, error)
	Sync() error
}

// open opens a file. If it creates the file and the caller has left by then, it removes the file
// again.
func (p protocol) open(ctx context.Context, key string, flag int) (h *handle, err error) {
	s, err := p.b.pool.get(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.b.enter(ctx, key); err != nil {
		return nil, err
	}
	err = patiently(ctx, busy, func() error {
		h, err = call(ctx, s, func(share *smb2.Share) (*handle, error) {
			f, err := openShared(share, key, flag)
			if err != nil {
				return nil, err
			}
			return p.b.keep(&handle{b: p.b, s: s, key: key, file: f, closed: make(chan struct{})}), nil
		}, func(h *handle) {
			h.Close()
			if flag&os.O_CREATE != 0 && h.wait(s.Context()) == nil {
				_ = s.Do(func() error { return s.share.Remove(key) }) // it is empty and omitted from listings
			}
		})
		return err
	})
	return h, err
}

// openShared opens or creates a file.
func openShared(share *smb2.Share, key string, flag int) (*smb2.File, error) {
	open := func() (*smb2.File, error) { return share.OpenFile(key, flag, 0o666) }
	if flag&os.O_CREATE != 0 {
		return open() // only a directory can be missing
	}
	return certain(open)
}

func (p protocol) Open(ctx context.Context, obj backends.Object, _ bool) (fileshare.File, error) {
	return p.open(ctx, obj.Key, os.O_RDONLY)
}

func (p protocol) Create(ctx context.Context, name string) (fileshare.TempFile, error) {
	h, err := p.open(ctx, name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	return h, vanishing(err)
}

func (h *handle) Reopen(ctx context.Context) (fileshare.TempFile, error) {
	return protocol{h.b}.open(ctx, h.key, os.O_RDWR)
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

// letGo closes all handles of a key and waits until they are closed.
func (b *Backend) letGo(ctx context.Context, key string) error {
	b.mu.Lock()
	var all []*handle
	for h := range b.handles[key] {
		all = append(all, h)
	}
	b.mu.Unlock()
	for _, h := range all {
		h.Close()
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

// use reports whether the file can be used. After true, the caller must call leave.
func (h *handle) use() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing || !h.s.Alive() {
		return false
	}
	h.users++
	return true
}

func (h *handle) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users--
	if h.closing && h.users == 0 {
		go h.closeNow()
	}
}

// Close closes the file as soon as it has no users.
func (h *handle) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return
	}
	h.closing = true
	if h.users == 0 {
		go h.closeNow()
	}
}

func (h *handle) closeNow() {
	if err := h.s.Do(h.file.Close); status(err) != 0 {
		h.mu.Lock()
		h.refused = err
		h.mu.Unlock()
	}
	h.b.mu.Lock()
	delete(h.b.handles[h.key], h)
	if len(h.b.handles[h.key]) == 0 {
		delete(h.b.handles, h.key)
	}
	h.b.mu.Unlock()
	close(h.closed)
}

// wait waits until the file is closed, after Close.
func (h *handle) wait(ctx context.Context) error {
	select {
	case <-h.closed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// transfer reads or writes buf by move, as a user of the file.
func (h *handle) transfer(buf []byte, off int64, move func(p []byte, off int64) (int, error)) (n int, err error) {
	if !h.use() {
		return 0, h.unusable()
	}
	defer h.leave()
	err = h.s.transfer(func() (err error) {
		for n < len(buf) && err == nil {
			var m int
			if m, err = move(buf[n:], off+int64(n)); m == 0 && err == nil {
				err = io.EOF
			}
			n += m
		}
		return err
	})
	return n, err
}

// unusable returns why the file cannot be used.
func (h *handle) unusable() error {
	if err := h.s.Err(); err != nil {
		return err
	}
	return fileshare.ErrClosed
}

func (h *handle) ReadAt(buf []byte, off int64) (int, error) {
	return h.transfer(buf, off, h.file.ReadAt)
}

func (h *handle) WriteAt(_ context.Context, buf []byte, off int64) (int, error) {
	return h.transfer(buf, off, h.file.WriteAt)
}

// Err also reports an error of the close, which may tell that data was not stored.
func (h *handle) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refused != nil {
		return h.refused
	}
	return h.s.Err()
}

func (h *handle) Stat(ctx context.Context) (fileshare.Info, error) {
	return call(ctx, h.s, func(*smb2.Share) (fileshare.Info, error) {
		if !h.use() {
			return fileshare.Info{}, &fileshare.LostError{Err: h.unusable()}
		}
		defer h.leave()
		return statFile(h.file)
	}, nil)
}

// Final closes the file. While a file is open, Samba reports the modification time from when it was
// opened, unless an SMB client changes the file.
func (h *handle) Final(ctx context.Context) (fileshare.Info, error) {
	h.Close()
	if err := h.wait(ctx); err != nil {
		return fileshare.Info{}, err
	}
	return protocol{h.b}.Stat(ctx, h.key)
}

// Finish returns the attributes from after the close, because servers set the modification time
// then. A call after an error continues at the step that failed.
func (h *handle) Finish(ctx context.Context) (fileshare.Info, error) {
	if err := h.flush(ctx); err != nil {
		return fileshare.Info{}, err
	}
	h.Close()
	if err := h.wait(ctx); err != nil {
		return fileshare.Info{}, err
	}
	h.mu.Lock()
	refused := h.refused
	h.mu.Unlock()
	if refused != nil {
		return fileshare.Info{}, refused
	}
	return protocol{h.b}.Stat(ctx, h.key)
}

// flush makes the written data durable, once.
func (h *handle) flush(ctx context.Context) error {
	h.mu.Lock()
	flushed := h.flushed
	h.mu.Unlock()
	if flushed {
		return nil
	}
	if !h.use() {
		return &fileshare.LostError{Err: h.unusable()}
	}
	return fileshare.Flush(ctx, h.s.Silence(), func() error {
		defer h.leave()
		err := h.s.transfer(h.file.Sync)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.flushed = err == nil
		return err
	})
}

// Discard waits until the file is closed, since a server does not remove an open file.
func (h *handle) Discard(ctx context.Context) error {
	h.Close()
	if err := h.wait(ctx); err != nil {
		return err
	}
	return patiently(ctx, busy, func() error { return protocol{h.b}.Remove(ctx, h.key) })
}

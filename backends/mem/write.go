package mem

import (
	"context"
	"sync"

	"github.com/stager-dev/stager/backends"
)

// Create implements backends.Sink.
func (b *Backend) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	u, err := b.begin(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return &writer{upload: u}, nil
}

// CreateParts implements backends.PartCreator.
func (b *Backend) CreateParts(ctx context.Context, key string, opts backends.CreateOptions) (backends.PartWriter, error) {
	if opts.Size < 0 {
		return nil, backends.Errorf(backends.Invalid, "create", key, "the size of an object in parts must be known")
	}
	u, err := b.begin(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	u.data = make([]byte, opts.Size)
	return &partWriter{upload: u, have: make(map[int64]bool)}, nil
}

func (b *Backend) begin(ctx context.Context, key string, opts backends.CreateOptions) (*upload, error) {
	if err := ended(ctx, "create", key); err != nil {
		return nil, err
	}
	if key == "" {
		return nil, backends.Errorf(backends.Invalid, "create", key, "an object needs a key")
	}
	b.mu.Lock()
	b.writers++
	b.mu.Unlock()
	return &upload{backend: b, ctx: ctx, key: key, opts: opts}, nil
}

// upload is the common state of both writers.
type upload struct {
	backend *Backend
	ctx     context.Context // the context of Create applies to writes
	key     string
	opts    backends.CreateOptions
	data    []byte

	mu        sync.Mutex
	over      bool
	committed backends.Object
}

// check returns why no more bytes can be written.
func (u *upload) check(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return backends.Errorf(backends.Invalid, "write", u.key, "the writer was closed by Commit or Abort")
	}
	return ended(ctx, "write", u.key)
}

// commit publishes the data. After a success it returns the same result again, for callers that
// lost the first response.
func (u *upload) commit(ctx context.Context, size int64) (backends.Object, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.committed.Key != "" {
		return u.committed, nil
	}
	if u.over {
		return backends.Object{}, backends.Errorf(backends.Invalid, "commit", u.key, "the writer was aborted")
	}
	if err := ended(ctx, "commit", u.key); err != nil {
		return backends.Object{}, err
	}
	if u.opts.Size >= 0 && size != u.opts.Size {
		return backends.Object{}, backends.Errorf(backends.Invalid, "commit", u.key,
			"%d bytes were announced but %d were written", u.opts.Size, size)
	}
	b, o := u.backend, u.backend.stored(u.data)
	b.mu.Lock()
	if err := b.guardLocked(u.key, u.opts); err != nil {
		b.mu.Unlock()
		return backends.Object{}, err
	}
	o = b.putLocked(u.key, o)
	b.writers--
	b.mu.Unlock()
	u.over = true
	u.committed = o.described()
	return u.committed, nil
}

// guardLocked returns an error of kind Exist or Changed if the conditions of opts do not hold.
func (b *Backend) guardLocked(key string, opts backends.CreateOptions) error {
	there, taken := b.objects[key]
	switch {
	case opts.IfAbsent && taken:
		return backends.Errorf(backends.Exist, "commit", key, "the key already exists")
	case opts.IfVersion != "" && !taken:
		return backends.Errorf(backends.Changed, "commit", key, "no object exists, but version %s was to be replaced", opts.IfVersion)
	case opts.IfVersion != "" && there.meta.Version != opts.IfVersion:
		return backends.Errorf(backends.Changed, "commit", key,
			"the object has version %s, but version %s was to be replaced", there.meta.Version, opts.IfVersion)
	}
	return nil
}

// Abort implements backends.Writer.
func (u *upload) Abort() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.over {
		u.over = true
		u.backend.mu.Lock()
		u.backend.writers--
		u.backend.mu.Unlock()
	}
	return nil
}

type writer struct{ *upload }

func (w *writer) Write(p []byte) (int, error) {
	if err := w.check(w.ctx); err != nil {
		return 0, err
	}
	w.data = append(w.data, p...)
	return len(p), nil
}

func (w *writer) Commit(ctx context.Context) (backends.Object, error) {
	return w.commit(ctx, int64(len(w.data)))
}

type partWriter struct {
	*upload
	have map[int64]bool // offsets of the parts written; guarded by upload.mu
}

func (w *partWriter) WritePart(ctx context.Context, off int64, src *backends.Part) error {
	if err := w.check(ctx); err != nil {
		return err
	}
	part := w.backend.capabilities.PartSize
	if off < 0 || off >= w.opts.Size || off%part != 0 || src.Size() != min(part, w.opts.Size-off) {
		return backends.Errorf(backends.Invalid, "write", w.key,
			"%d bytes at offset %d are not a part of %d bytes in parts of %d", src.Size(), off, w.opts.Size, part)
	}
	if _, err := src.ReadAt(w.data[off:off+src.Size()], 0); err != nil {
		return err
	}
	w.mu.Lock()
	w.have[off] = true
	w.mu.Unlock()
	return nil
}

func (w *partWriter) Commit(ctx context.Context) (backends.Object, error) {
	var size int64
	w.mu.Lock()
	for off := range w.have {
		size += min(w.backend.capabilities.PartSize, w.opts.Size-off)
	}
	w.mu.Unlock()
	return w.commit(ctx, size)
}

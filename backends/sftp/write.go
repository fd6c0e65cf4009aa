package sftp

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"

	"github.com/pkg/sftp"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// Create implements backends.Sink.
func (b *Backend) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	u, err := b.begin(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return &writer{upload: u, handle: u.h, flight: flight{u: u}}, nil
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
	return &partWriter{upload: u, part: b.Capabilities().PartLength(opts.Size), have: make(map[int64]part)}, nil
}

// begin creates the temporary file and its directories.
func (b *Backend) begin(ctx context.Context, key string, opts backends.CreateOptions) (*upload, error) {
	if err := fileshare.Ended(ctx, "create", key); err != nil {
		return nil, err
	}
	if err := b.CheckKey(key); err != nil {
		return nil, err
	}
	s, release, err := b.pool.Hold(ctx)
	if err != nil {
		return nil, err
	}
	u := &upload{b: b, ctx: ctx, key: key, temp: fileshare.NewTemporary(path.Dir(key)), opts: opts, release: release}
	if u.h, err = b.create(ctx, s, u.temp); err != nil {
		release()
		err = b.because(ctx, s, classify("create", key, err))
		b.left.Keep(u.temp, err)
		return nil, err
	}
	b.left.Sweep(func(temp string) error { return b.discard(ctx, temp) })
	return u, nil
}

// create creates a temporary file and the missing directories above it.
func (b *Backend) create(ctx context.Context, s *session, temp string) (h handle, err error) {
	// A concurrent Delete may remove the still empty directory.
	for range 100 {
		h, err = b.openHandle(ctx, s, temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
		if !errors.Is(err, fs.ErrNotExist) {
			return h, err
		}
		if err := b.makeDirs(ctx, s, path.Dir(temp)); err != nil {
			return handle{}, err
		}
	}
	return h, err
}

// makeDirs creates dir and its missing parents.
func (b *Backend) makeDirs(ctx context.Context, s *session, dir string) error {
	if dir == "." {
		return nil
	}
	mkdir := func() error { return run(ctx, s, func(c *sftp.Client) error { return c.Mkdir(b.at(dir)) }) }
	err := mkdir()
	if errors.Is(err, fs.ErrNotExist) {
		if err := b.makeDirs(ctx, s, path.Dir(dir)); err != nil {
			return err
		}
		err = mkdir()
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil // a concurrent Delete removed the parent; create retries
	}
	info, serr := b.stat(ctx, s, dir)
	switch {
	case serr != nil:
		return err
	case !info.IsDir():
		return backends.Errorf(backends.Invalid, "create", dir, "a parent of the key is a file")
	}
	return nil
}

// because replaces a failure without a reason by a full disk if the disk is full, as the protocol
// has no status for it.
func (b *Backend) because(ctx context.Context, s *session, err error) error {
	var e *backends.Error
	if status(err) != statusFailure || !errors.As(err, &e) || !b.extensions.space {
		return err
	}
	ctx, cancel := fileshare.Cleanup(ctx)
	defer cancel()
	// The directory of the file may not exist yet.
	for dir := path.Dir(e.Key); ; dir = path.Dir(dir) {
		free, serr := call(ctx, s, func(c *sftp.Client) (*sftp.StatVFS, error) { return c.StatVFS(b.at(dir)) }, nil)
		if serr == nil && free.Bavail*free.Frsize < chunkSize {
			return &backends.Error{Op: e.Op, Key: e.Key, Kind: backends.NoSpace, Err: backends.InWords("the server's disk is full", err)}
		}
		if serr == nil || dir == "." || fileshare.IsLost(serr) {
			return err
		}
	}
}

// upload is the temporary file and state that both writers share.
type upload struct {
	b       *Backend
	ctx     context.Context // the context of Create, which bounds all writes
	key     string
	temp    string
	opts    backends.CreateOptions
	release func()

	committing sync.Mutex // held by Commit and Abort

	mu        sync.Mutex // guards the fields below
	h         handle
	over      error // permanent error
	dropped   bool  // the temporary file is removed
	flushed   bool
	unsure    bool // an earlier request to publish may have been carried out
	claim     *backends.Claim
	published bool
	object    backends.Object
}

// usable returns an error if no more data can be written.
func (u *upload) usable(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over != nil {
		return u.over
	}
	if u.published || u.flushed {
		return backends.Errorf(backends.Invalid, "write", u.key, "the writer was committed")
	}
	return fileshare.Ended(ctx, "write", u.key)
}

// current returns the open file. It reopens the file if its session has ended.
func (u *upload) current(ctx context.Context) (handle, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.h.s.Alive() {
		return u.h, nil
	}
	s, release, err := u.b.pool.Hold(ctx)
	if err != nil {
		return handle{}, err
	}
	h, err := u.b.openHandle(ctx, s, u.temp, os.O_WRONLY)
	if err != nil {
		release()
		return handle{}, classify("write", u.key, err)
	}
	u.release()
	u.h, u.release = h, release
	return h, nil
}

// flight holds the chunks of one writer that are in flight.
type flight struct {
	u      *upload
	chunks []*chunk
}

// add returns a chunk of the given size, after waiting for earlier ones if necessary. The caller
// fills and starts it.
func (f *flight) add(ctx context.Context, off, size int64) (*chunk, error) {
	if len(f.chunks) == window {
		if err := f.land(ctx); err != nil {
			return nil, err
		}
	}
	return newChunk(off, size), nil
}

func (f *flight) start(c *chunk, h handle) {
	c.start(h, true)
	f.chunks = append(f.chunks, c)
}

// land waits for the oldest chunk.
func (f *flight) land(ctx context.Context) error {
	c := f.chunks[0]
	select {
	case <-c.ready:
	case <-ctx.Done():
		return fileshare.Ended(ctx, "write", f.u.key)
	}
	f.chunks = f.chunks[1:]
	err := c.err
	c.free()
	return f.u.because(ctx, classify("write", f.u.key, err))
}

// because is Backend.because with the session of the file.
func (u *upload) because(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	u.mu.Lock()
	s := u.h.s
	u.mu.Unlock()
	return u.b.because(ctx, s, err)
}

// landAll waits for all chunks.
func (f *flight) landAll(ctx context.Context) error {
	for len(f.chunks) > 0 {
		if err := f.land(ctx); err != nil {
			return err
		}
	}
	return nil
}

// drop abandons the remaining chunks, which finish in the background.
func (f *flight) drop() {
	for _, c := range f.chunks {
		c.free()
	}
	f.chunks = nil
}

// writer is a sequential upload. It cannot send its data again, so it fails when its session ends.
type writer struct {
	*upload
	handle  handle
	flight  flight
	waiting *chunk // not yet full
	filled  int
	written int64
}

func (w *writer) Write(p []byte) (n int, err error) {
	if err := w.usable(w.ctx); err != nil {
		return 0, err
	}
	for len(p) > 0 {
		if w.waiting == nil {
			if w.waiting, err = w.flight.add(w.ctx, w.written, chunkSize); err != nil {
				return n, w.fail(err)
			}
			w.filled = 0
		}
		m := copy(w.waiting.buf[w.filled:], p)
		p = p[m:]
		n, w.filled, w.written = n+m, w.filled+m, w.written+int64(m)
		if w.filled == len(w.waiting.buf) {
			w.send()
		}
	}
	return n, nil
}

func (w *writer) send() {
	w.waiting.buf = w.waiting.buf[:w.filled]
	w.flight.start(w.waiting, w.handle)
	w.waiting = nil
}

// fail makes the error permanent, since some written data is lost.
func (w *writer) fail(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over == nil {
		w.over = err
	}
	return err
}

// Commit implements backends.Writer.
func (w *writer) Commit(ctx context.Context) (backends.Object, error) {
	if err := fileshare.Ended(ctx, "commit", w.key); err != nil {
		return backends.Object{}, err
	}
	if w.waiting != nil {
		w.send()
	}
	if err := w.flight.landAll(ctx); err != nil {
		return backends.Object{}, w.fail(err)
	}
	return w.commit(ctx, w.written, func() error {
		if !w.handle.s.Alive() {
			return w.fail(classify("commit", w.key, w.handle.s.Err()))
		}
		return nil
	})
}

// Abort implements backends.Writer.
func (w *writer) Abort() error {
	if w.waiting != nil {
		close(w.waiting.ready) // it was never started
		w.waiting.free()
		w.waiting = nil
	}
	w.flight.drop()
	return w.upload.Abort()
}

// part records the source of a written part and the session that it was sent in.
type part struct {
	src *io.SectionReader
	s   *session
}

type partWriter struct {
	*upload
	part int64
	have map[int64]part // by offset; guarded by upload.mu
}

// WritePart implements backends.PartWriter.
func (w *partWriter) WritePart(ctx context.Context, off int64, src *io.SectionReader) error {
	if err := w.usable(ctx); err != nil {
		return err
	}
	if off < 0 || off >= w.opts.Size || off%w.part != 0 || src.Size() != min(w.part, w.opts.Size-off) {
		return backends.Errorf(backends.Invalid, "write", w.key,
			"%d bytes at offset %d are not a part of %d bytes in parts of %d", src.Size(), off, w.opts.Size, w.part)
	}
	return w.write(ctx, off, src)
}

func (w *partWriter) write(ctx context.Context, off int64, src *io.SectionReader) error {
	h, done, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer done()
	f := flight{u: w.upload}
	defer f.drop()
	for at := int64(0); at < src.Size(); {
		c, err := f.add(ctx, off+at, min(chunkSize, src.Size()-at))
		if err != nil {
			return err
		}
		n, err := src.ReadAt(c.buf, at)
		if n < len(c.buf) {
			close(c.ready) // never started
			c.free()
			return &backends.LocalError{Err: err}
		}
		f.start(c, h)
		at += int64(n)
	}
	if err := f.landAll(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.have[off] = part{src, h.s}
	return nil
}

// open opens the file once more, in the session with the fewest streams, so that large files use all
// of them.
func (w *partWriter) open(ctx context.Context) (h handle, done func(), err error) {
	if w.opts.Size <= w.part {
		h, err = w.current(ctx)
		return h, func() {}, err
	}
	s, release, err := w.b.pool.Hold(ctx)
	if err != nil {
		return handle{}, nil, err
	}
	if h, err = w.b.openHandle(ctx, s, w.temp, os.O_WRONLY); err != nil {
		release()
		return handle{}, nil, classify("write", w.key, err)
	}
	return h, func() { h.close(); release() }, nil
}

// Commit implements backends.PartWriter.
func (w *partWriter) Commit(ctx context.Context) (backends.Object, error) {
	var size int64
	w.mu.Lock()
	for _, p := range w.have {
		size += p.src.Size()
	}
	w.mu.Unlock()
	return w.commit(ctx, size, func() error { return w.again(ctx) })
}

// again rewrites the parts whose session has ended. They were not flushed, so a server that crashed
// may have lost them.
func (w *partWriter) again(ctx context.Context) error {
	stale := make(map[int64]part)
	w.mu.Lock()
	for off, p := range w.have {
		if !p.s.Alive() {
			stale[off] = p
		}
	}
	w.mu.Unlock()
	for off, p := range stale {
		if err := w.write(ctx, off, backends.Unpaced(p.src)); err != nil {
			return err
		}
		backends.Moved(ctx)
	}
	return nil
}

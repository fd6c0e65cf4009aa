package fileshare

import (
	"context"

	"github.com/stager-dev/stager/backends"
)

// Create implements backends.Sink.
func (s *Share) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	u, err := s.newUpload(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return &writer{Upload: u, file: u.file, flight: flight{u: u}}, nil
}

// CreateParts implements backends.PartCreator.
func (s *Share) CreateParts(ctx context.Context, key string, opts backends.CreateOptions) (backends.PartWriter, error) {
	if opts.Size < 0 {
		return nil, backends.Errorf(backends.Invalid, "create", key, "the size of an object in parts must be known")
	}
	u, err := s.newUpload(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return &partWriter{Upload: u, part: backends.Capabilities{PartSize: s.config.PartSize}.PartLength(opts.Size), have: make(map[int64]part)}, nil
}

// writer is a sequential upload. It cannot send its data again, so it fails when its session ends.
type writer struct {
	*Upload
	file    TempFile
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
			size := int64(w.share.config.ChunkSize)
			if w.Opts.Size >= 0 {
				size = max(min(size, w.Opts.Size-w.written), int64(min(len(p), smallChunk)))
			}
			if w.waiting, err = w.flight.add(w.ctx, w.written, size); err != nil {
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
	w.flight.start(w.ctx, w.waiting, w.file)
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
	if err := Ended(ctx, "commit", w.Key); err != nil {
		return backends.Object{}, err
	}
	if w.waiting != nil {
		w.send()
	}
	if err := w.flight.awaitAll(ctx); err != nil {
		return backends.Object{}, w.fail(err)
	}
	return w.commit(ctx, w.written, func() error {
		if err := w.file.Err(); err != nil {
			return w.fail(w.share.p.Classify("commit", w.Key, err))
		}
		return nil
	})
}

// Abort implements backends.Writer.
func (w *writer) Abort() error {
	if w.waiting != nil {
		w.waiting.abandon()
		w.waiting = nil
	}
	w.flight.drop()
	return w.Upload.Abort()
}

// part is the source of a written part and the file that it was written to.
type part struct {
	src  *backends.Part
	file TempFile
}

// partWriter is an upload in parts, in any order.
type partWriter struct {
	*Upload
	part int64
	have map[int64]part // by offset; guarded by Upload.mu
}

// WritePart implements backends.PartWriter.
func (w *partWriter) WritePart(ctx context.Context, off int64, src *backends.Part) error {
	if err := w.usable(ctx); err != nil {
		return err
	}
	if err := CheckPart(w.Key, off, src.Size(), w.Opts.Size, w.part); err != nil {
		return err
	}
	return w.write(ctx, off, src)
}

// CheckPart returns an error of kind Invalid unless n bytes at off are a part of an object of size
// bytes in parts of the given length.
func CheckPart(key string, off, n, size, part int64) error {
	if off < 0 || off >= size || off%part != 0 || n != min(part, size-off) {
		return backends.Errorf(backends.Invalid, "write", key,
			"%d bytes at offset %d are not a part of %d bytes in parts of %d", n, off, size, part)
	}
	return nil
}

func (w *partWriter) write(ctx context.Context, off int64, src *backends.Part) error {
	file, done, err := w.openPart(ctx)
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithCancel(ctx)
	f := flight{u: w.Upload}
	defer f.drop()
	defer cancel()
	if direct, ok := file.(SourceWriter); ok {
		if err := f.writeFrom(ctx, cancel, direct, off, src); err != nil {
			return err
		}
		w.wrote(off, src, file)
		return nil
	}
	for at := int64(0); at < src.Size(); {
		c, err := f.add(ctx, off+at, min(int64(w.share.config.ChunkSize), src.Size()-at))
		if err != nil {
			return err
		}
		n, err := src.ReadAt(c.buf, at)
		if n < len(c.buf) {
			c.abandon()
			return err
		}
		f.start(ctx, c, file)
		at += int64(n)
	}
	if err := f.awaitAll(ctx); err != nil {
		return err
	}
	w.wrote(off, src, file)
	return nil
}

func (w *partWriter) wrote(off int64, src *backends.Part, file TempFile) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.have[off] = part{src, file}
}

// writeFrom writes a part without buffers. When it returns, nothing reads src any more.
func (f *flight) writeFrom(ctx context.Context, cancel func(), file SourceWriter, off int64, src *backends.Part) (err error) {
	for at := int64(0); at < src.Size() && err == nil; {
		n := min(int64(f.u.share.config.ChunkSize), src.Size()-at)
		var c *chunk
		if c, err = f.add(ctx, off+at, 0); err == nil {
			f.run(c, func() (int, error) { return file.WriteFrom(ctx, c.off, src, c.off-off, int(n)) })
			at += n
		}
	}
	if err == nil {
		err = f.awaitAll(ctx)
	}
	cancel()
	for _, c := range f.chunks {
		<-c.ready
	}
	return err
}

// openPart returns the file for a part, and what to call after the part is written.
func (w *partWriter) openPart(ctx context.Context) (f TempFile, done func(), err error) {
	if !w.share.config.SpreadParts || w.Opts.Size <= w.part {
		f, err = w.open(ctx)
		return f, func() {}, err
	}
	if f, err = w.File().Reopen(ctx); err != nil {
		return nil, nil, w.share.p.Classify("write", w.Key, err)
	}
	return f, f.Close, nil
}

// Commit implements backends.PartWriter.
func (w *partWriter) Commit(ctx context.Context) (backends.Object, error) {
	var size int64
	w.mu.Lock()
	for _, p := range w.have {
		size += p.src.Size()
	}
	w.mu.Unlock()
	return w.commit(ctx, size, func() error { return w.rewrite(ctx) })
}

// rewrite writes the parts again whose session has ended. They were not durable, so a server that
// crashed may have lost them.
func (w *partWriter) rewrite(ctx context.Context) error {
	stale := make(map[int64]part)
	w.mu.Lock()
	for off, p := range w.have {
		if p.file.Err() != nil {
			stale[off] = p
		}
	}
	w.mu.Unlock()
	for off, p := range stale {
		if err := w.write(ctx, off, p.src.Unpaced()); err != nil {
			return err
		}
	}
	return nil
}

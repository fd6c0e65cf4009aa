package fileshare

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/stager-dev/stager/backends"
)

// smallChunk is the largest size that uses a small buffer.
const smallChunk = 64 << 10

// buffers holds the memory of chunks.
type buffers struct {
	size         int
	budget       Budget // nil: no limit
	large, small *sync.Pool
}

func newBuffers(size int, budget Budget) *buffers {
	of := func(n int) *sync.Pool {
		return &sync.Pool{New: func() any { memory := make([]byte, n); return &memory }}
	}
	return &buffers{size: size, budget: budget, large: of(size), small: of(smallChunk)}
}

// chunk is a piece of a file in transfer. Its creator calls free exactly once, whether or not the
// transfer is finished.
type chunk struct {
	off   int64
	buf   []byte
	clear func() // returns the memory

	ready chan struct{} // closed when n and err are set
	n     int           // bytes moved
	err   error
}

// chunk returns a chunk, or nil if it would be an extra one and the budget does not allow it.
func (b *buffers) chunk(off, size int64, extra bool) *chunk {
	if extra = extra && b.budget != nil; extra && !b.budget.Acquire() {
		return nil
	}
	pool := b.large
	if size <= smallChunk {
		pool = b.small
	}
	memory := pool.Get().(*[]byte)
	clear := func() {
		pool.Put(memory)
		if extra {
			b.budget.Release()
		}
	}
	return &chunk{off: off, buf: (*memory)[:size], clear: clear, ready: make(chan struct{})}
}

// free returns the memory as soon as the request is done.
func (c *chunk) free() {
	select {
	case <-c.ready:
		c.clear()
	default:
		go func() {
			<-c.ready
			c.clear()
		}()
	}
}

// abandon frees a chunk that was never started.
func (c *chunk) abandon() {
	close(c.ready)
	c.free()
}

// read starts to read the chunk in the background.
func (c *chunk) read(f File) {
	go func() {
		defer close(c.ready)
		c.n, c.err = f.ReadAt(c.buf, c.off)
		if c.n < len(c.buf) && c.err == nil {
			c.err = io.EOF
		}
	}()
}

// run starts a write in the background.
func (c *chunk) run(write func() (int, error)) {
	go func() {
		defer close(c.ready)
		c.n, c.err = write()
	}()
}

// flight holds the chunks of one writer that are in flight.
type flight struct {
	u      *Upload
	chunks []*chunk
}

// add returns a chunk of the given size, after waiting for earlier ones if necessary. The caller
// fills and starts it.
func (f *flight) add(ctx context.Context, off, size int64) (*chunk, error) {
	s := f.u.share
	for {
		if len(f.chunks) < s.config.Window {
			if c := s.buffers.chunk(off, size, len(f.chunks) > 0); c != nil {
				return c, nil
			}
		}
		if err := f.await(ctx); err != nil {
			return nil, err
		}
	}
}

func (f *flight) start(ctx context.Context, c *chunk, file TempFile) {
	f.run(c, func() (int, error) { return file.WriteAt(ctx, c.buf, c.off) })
}

func (f *flight) run(c *chunk, write func() (int, error)) {
	c.run(write)
	f.chunks = append(f.chunks, c)
}

// await waits for the oldest chunk.
func (f *flight) await(ctx context.Context) error {
	c := f.chunks[0]
	select {
	case <-c.ready:
	case <-ctx.Done():
		return Ended(ctx, "write", f.u.Key)
	}
	f.chunks = f.chunks[1:]
	err := c.err
	c.free()
	if err == nil {
		backends.Moved(ctx)
		return nil
	}
	if errors.Is(err, ErrClosed) {
		err = &LostError{err}
	}
	return f.u.share.p.Classify("write", f.u.Key, err)
}

// awaitAll waits for all chunks.
func (f *flight) awaitAll(ctx context.Context) error {
	for len(f.chunks) > 0 {
		if err := f.await(ctx); err != nil {
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

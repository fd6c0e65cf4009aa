package smb

import (
	"errors"
	"io"
	"sync"
)

// chunkSize is what one request carries. Servers take twice as much, which makes
// nothing faster: what a chunk costs is its memory, once here and once in what the
// library receives into, twice if it decrypts.
const chunkSize = 512 << 10

// window is how many chunks of one stream are under way. The first is its own; the
// others are taken from what the whole Backend has.
const window = 8

// smallChunk is up to which size a chunk has a small buffer.
const smallChunk = 64 << 10

var largeBuffers, smallBuffers = sync.Pool{New: func() any { return new([chunkSize]byte) }}, sync.Pool{New: func() any { return new([smallChunk]byte) }}

// chunk is a piece of a file on its way. Whoever made it calls free, once, when it is
// not needed any more, be it done or not.
type chunk struct {
	b     *Backend
	extra bool // it has a place in b.extra
	off   int64
	buf   []byte
	back  func() // returns the buffer

	ready chan struct{} // closed when what follows is set
	n     int           // bytes moved
	err   error
}

// newChunk makes a chunk; nil if it would be an extra one and there are none.
func (b *Backend) newChunk(off, size int64, extra bool) *chunk {
	if extra {
		if !b.pool.far.Load() && len(b.extra) >= extraNear {
			return nil // one more than that, where two look at once, does no harm
		}
		select {
		case b.extra <- struct{}{}:
		default:
			return nil
		}
	}
	c := &chunk{b: b, extra: extra, off: off, ready: make(chan struct{})}
	if size <= smallChunk {
		buf := smallBuffers.Get().(*[smallChunk]byte)
		c.buf, c.back = buf[:size], func() { smallBuffers.Put(buf) }
	} else {
		buf := largeBuffers.Get().(*[chunkSize]byte)
		c.buf, c.back = buf[:size], func() { largeBuffers.Put(buf) }
	}
	return c
}

// free gives buffer and place back, as soon as the request is done with them.
func (c *chunk) free() {
	select {
	case <-c.ready:
		c.release()
	default:
		go func() {
			<-c.ready
			c.release()
		}()
	}
}

func (c *chunk) release() {
	c.back()
	if c.extra {
		<-c.b.extra
	}
}

// errRetired says that the file was closed by letGo or with its session.
var errRetired = errors.New("the file was let go")

// start reads or writes the chunk.
func (c *chunk) start(h *handle, write bool) {
	if !h.use() {
		c.err = errRetired
		if !h.s.alive() {
			c.err = &lost{errors.New("the session has ended")}
		}
		close(c.ready)
		return
	}
	go func() {
		defer close(c.ready)
		defer h.done()
		c.err = h.s.transfer(func() (err error) {
			for c.n < len(c.buf) && err == nil {
				var n int
				if write {
					n, err = h.file.WriteAt(c.buf[c.n:], c.off+int64(c.n))
				} else if n, err = h.file.ReadAt(c.buf[c.n:], c.off+int64(c.n)); n == 0 && err == nil {
					err = io.EOF
				}
				c.n += n
			}
			return err
		})
	}()
}

package smb

import (
	"errors"
	"io"
	"sync"

	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// chunkSize is the payload of one request. Servers accept twice as much, but that is not faster. A
// chunk costs memory twice: here and in the receive buffer of the library, which doubles when it
// decrypts.
const chunkSize = 512 << 10

// window limits the chunks in flight of one stream. The first one is always available; the others
// share the extra chunks of the Backend.
const window = 8

// smallChunk is the largest size that uses a small buffer.
const smallChunk = 64 << 10

var largeBuffers, smallBuffers = sync.Pool{New: func() any { return new([chunkSize]byte) }}, sync.Pool{New: func() any { return new([smallChunk]byte) }}

// chunk is a piece of a file in transfer. Its creator calls free exactly once, whether or not the
// transfer is finished.
type chunk struct {
	b     *Backend
	extra bool // it holds a token of b.extra
	off   int64
	buf   []byte
	back  func() // returns the buffer

	ready chan struct{} // closed when n and err are set
	n     int           // bytes moved
	err   error
}

// newChunk returns a chunk, or nil if it would be an extra one and none is available.
func (b *Backend) newChunk(off, size int64, extra bool) *chunk {
	if extra {
		if !b.pool.far.Load() && len(b.extra) >= extraNear {
			return nil // a race may allow one more, which does no harm
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

// free returns the buffer and the token as soon as the request is done.
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

// errRetired reports that the file was closed by letGo or with its session.
var errRetired = errors.New("the file was closed")

// start reads or writes the chunk in the background.
func (c *chunk) start(h *handle, write bool) {
	if !h.use() {
		c.err = errRetired
		if !h.s.Alive() {
			c.err = &fileshare.LostError{Err: errors.New("the session has ended")}
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

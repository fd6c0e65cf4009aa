package sftp

import (
	"io"
	"sync"

	"github.com/pkg/sftp"
)

// chunkSize is the payload of one request to an OpenSSH server, and of four to others.
const chunkSize = 128 << 10

// window limits the chunks in flight of one stream. All of them together must fit into the window
// of an SSH channel, 2 MiB.
const window = 8

var buffers = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// handle is an open file of a session.
type handle struct {
	s    *session
	file *sftp.File
}

// close closes the file in the background, after its pending requests.
func (h handle) close() {
	go func() { _ = h.s.Do(h.file.Close) }() // written data was flushed before
}

// chunk is a piece of a file in transfer. Its creator calls free exactly once, whether or not the
// transfer is finished.
type chunk struct {
	off    int64
	buf    []byte
	memory *[chunkSize]byte

	ready chan struct{} // closed when n and err are set
	n     int           // bytes moved
	err   error
}

func newChunk(off, size int64) *chunk {
	memory := buffers.Get().(*[chunkSize]byte)
	return &chunk{off: off, buf: memory[:size], memory: memory, ready: make(chan struct{})}
}

// free returns the buffer as soon as the request is done.
func (c *chunk) free() {
	select {
	case <-c.ready:
		buffers.Put(c.memory)
	default:
		go func() {
			<-c.ready
			buffers.Put(c.memory)
		}()
	}
}

// start reads or writes the chunk in the background.
func (c *chunk) start(h handle, write bool) {
	go func() {
		defer close(c.ready)
		c.err = h.s.Do(func() (err error) {
			if write {
				c.n, err = h.file.WriteAt(c.buf, c.off)
				return err
			}
			c.n, err = h.file.ReadAt(c.buf, c.off)
			if c.n < len(c.buf) && err == nil {
				err = io.EOF
			}
			return err
		})
	}()
}

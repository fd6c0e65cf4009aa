package objectstore

import (
	"encoding/binary"
	"net"
	"sync"
)

const (
	recordHeader = 5
	// fullRecord is the size of a TLS 1.3 record with as many bytes as one may have.
	fullRecord = recordHeader + 16<<10 + 1 + 16
)

// recordConn is a connection below TLS. Each Read ends where a record ends, at the latest. Otherwise
// the buffer of crypto/tls, which never shrinks, holds parts of several records and grows to 40 KiB and
// more in each connection, of which there may be hundreds. So it has 18 KiB, or 32 KiB if the server
// begins with short records, as those in Go do.
type recordConn struct {
	net.Conn
	header [recordHeader]byte // of the record that arrives
	known  int                // bytes of header that have arrived
	left   int                // bytes of the record that have not arrived, after its header
	early  *[fullRecord]byte  // holds bytes that arrived with a record and follow it; nil: none did
	rest   []byte             // of early, not read yet
}

// earlyBuffers are the buffers for recordConn.early.
var earlyBuffers = sync.Pool{New: func() any { return new([fullRecord]byte) }}

func (c *recordConn) Read(p []byte) (n int, err error) {
	if c.early != nil {
		return c.readEarly(p), nil
	}
	most := c.left
	if most == 0 {
		most = fullRecord - c.known // records are full, or those that follow arrive with them
	}
	n, err = c.Conn.Read(p[:min(len(p), most)])
	p = p[:n]
	if n = c.follow(p); n < len(p) {
		c.early = earlyBuffers.Get().(*[fullRecord]byte)
		c.rest = c.early[:copy(c.early[:], p[n:])]
		return n, nil // an error comes again
	}
	return n, err
}

// readEarly is Read for bytes that are there.
func (c *recordConn) readEarly(p []byte) int {
	n := c.follow(c.rest[:min(len(p), len(c.rest))])
	copy(p, c.rest[:n])
	if c.rest = c.rest[n:]; len(c.rest) == 0 {
		earlyBuffers.Put(c.early)
		c.early = nil
	}
	return n
}

// follow returns how many bytes of p are up to the end of the record, and advances by these.
func (c *recordConn) follow(p []byte) (n int) {
	if c.left == 0 {
		n = copy(c.header[c.known:], p)
		if c.known += n; c.known < recordHeader {
			return n
		}
		c.known, c.left = 0, int(binary.BigEndian.Uint16(c.header[recordHeader-2:]))
	}
	body := min(len(p)-n, c.left)
	c.left -= body
	return n + body
}

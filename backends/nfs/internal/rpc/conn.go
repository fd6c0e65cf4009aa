package rpc

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Options configures a connection. The zero value works.
type Options struct {
	// Silence is how long calls wait while nothing arrives before the connection counts as broken.
	// 0 means 20 seconds.
	Silence time.Duration
	// MaxReply is the longest response in bytes. 0 means 4 MiB. A longer one breaks the connection.
	MaxReply int
}

func (o Options) defaults() Options {
	if o.Silence <= 0 {
		o.Silence = 20 * time.Second
	}
	if o.MaxReply <= 0 {
		o.MaxReply = 4 << 20
	}
	return o
}

// BrokenError reports that a connection ended before the response arrived.
type BrokenError struct{ Err error }

func (e *BrokenError) Error() string { return "the connection broke: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *BrokenError) Unwrap() error { return e.Err }

// Conn is a connection with many concurrent calls. Its methods are safe for concurrent use.
type Conn struct {
	nc   net.Conn
	opts Options
	send chan *Call
	done chan struct{} // closed when the connection is broken
	mute chan struct{} // closed when sending has stopped

	mu      sync.Mutex // guards the fields below
	pending map[uint32]*Call
	err     error // why the connection is broken
}

// NewConn returns a Conn that owns nc.
func NewConn(nc net.Conn, opts Options) *Conn {
	c := &Conn{
		nc: nc, opts: opts.defaults(), send: make(chan *Call, 256),
		done: make(chan struct{}), mute: make(chan struct{}), pending: make(map[uint32]*Call),
	}
	go c.write()
	go c.read()
	return c
}

// Close breaks the connection.
func (c *Conn) Close() error {
	c.fail(net.ErrClosed)
	return nil
}

// Broken reports whether the connection is broken.
func (c *Conn) Broken() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// fail breaks the connection and all its calls.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("the server did not respond for %v", c.opts.Silence)
	} else if errors.Is(err, io.EOF) {
		err = errors.New("closed by the server")
	}
	c.err = &BrokenError{err}
	close(c.done)
	_ = c.nc.Close() // the pending data is lost anyway
	go c.abandon()
}

// abandon fails all calls, after the sender has returned their messages.
func (c *Conn) abandon() {
	<-c.mute
	c.mu.Lock()
	defer c.mu.Unlock()
	for xid, call := range c.pending {
		delete(c.pending, xid)
		call.end(nil, c.err)
	}
}

// Call is a pending call.
type Call struct {
	conn  *Conn
	msg   *Encoder
	data  expected      // of msg
	sent  chan struct{} // closed when msg is sent
	ended chan struct{}
	reply *Reply // set when ended is closed
	err   error
}

func (l *Call) end(r *Reply, err error) {
	l.reply, l.err = r, err
	close(l.ended)
}

// Wait returns the response. If ctx ends first, Wait returns its error; the call goes on, and Wait
// may be called again. Only one caller may get the reply, and must release it.
func (l *Call) Wait(ctx context.Context) (*Reply, error) {
	select {
	case <-l.ended:
	default:
		select {
		case <-l.ended:
		case <-ctx.Done():
			return nil, Ended(ctx)
		}
	}
	select { // the response may arrive before the sender is done
	case <-l.sent:
	case <-l.conn.mute:
	}
	return l.reply, l.err
}

// Recycle releases the memory of the message after the response has arrived. The message must not
// be used again.
func (l *Call) Recycle() {
	putBuffer(l.msg.b)
	l.msg.b = nil
}

// Start sends a message. The call owns the message until Wait has returned the outcome.
func (c *Conn) Start(msg *Encoder) (*Call, error) {
	xid, err := msg.finish()
	if err != nil {
		return nil, err
	}
	call := &Call{conn: c, msg: msg, data: msg.data, sent: make(chan struct{}), ended: make(chan struct{})}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, c.err
	}
	if _, twice := c.pending[xid]; twice {
		c.mu.Unlock()
		return nil, fmt.Errorf("message %d is already in flight", xid)
	}
	if len(c.pending) == 0 {
		c.watchLocked(true)
	}
	c.pending[xid] = call
	c.mu.Unlock()
	select {
	case c.send <- call:
	case <-c.done: // breaking the connection ends the call
	}
	return call, nil
}

// watchLocked restarts the silence timer, or stops it.
func (c *Conn) watchLocked(on bool) {
	var until time.Time
	if on {
		until = time.Now().Add(c.opts.Silence)
	}
	_ = c.nc.SetReadDeadline(until) // on a closed connection it does not matter
}

// write is the sending goroutine.
func (c *Conn) write() {
	defer close(c.mute)
	for {
		select {
		case <-c.done:
			return
		case call := <-c.send:
			_ = c.nc.SetWriteDeadline(time.Now().Add(c.opts.Silence))
			if _, err := c.nc.Write(call.msg.b); err != nil {
				c.fail(err)
				return
			}
			close(call.sent)
		}
	}
}

// readAhead is the size of the buffer in front of the connection. It is small, because the part of a long
// message that arrives in it is copied once more.
const readAhead = 4 << 10

// read is the receiving goroutine.
func (c *Conn) read() {
	in := bufio.NewReaderSize(&watched{c}, readAhead)
	for {
		record, err := readRecord(in, c.opts.MaxReply, c.expected)
		if err != nil {
			c.fail(err)
			return
		}
		head := record.bytes()
		if len(head) < 8 || binary.BigEndian.Uint32(head[4:]) != 1 {
			record.release() // not a reply: an unsolicited callback of the server
			continue
		}
		xid := binary.BigEndian.Uint32(head)
		c.mu.Lock()
		call := c.pending[xid]
		delete(c.pending, xid)
		if c.err == nil {
			c.watchLocked(len(c.pending) > 0)
		}
		c.mu.Unlock()
		if call == nil {
			record.release()
			continue
		}
		reply := &Reply{Decoder: Decoder{b: head[8:]}, record: record}
		if err := accepted(&reply.Decoder); err != nil {
			reply.Release()
			reply = nil
			call.end(nil, err)
			continue
		}
		call.end(reply, nil)
	}
}

// expected returns what the call with this transaction id expects in its response.
func (c *Conn) expected(xid uint32) expected {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call := c.pending[xid]; call != nil {
		return call.data
	}
	return expected{}
}

// watched reads from the connection and restarts the silence timer.
type watched struct{ c *Conn }

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.c.nc.Read(p)
	if n > 0 {
		w.c.mu.Lock()
		if w.c.err == nil && len(w.c.pending) > 0 {
			w.c.watchLocked(true)
		}
		w.c.mu.Unlock()
	}
	return n, err
}

package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// Dialer opens a connection to a server.
type Dialer func(ctx context.Context) (net.Conn, error)

// Client is some connections to one server, opened when they are needed and again
// when they broke. Its methods may be called from many goroutines at once.
type Client struct {
	dial  Dialer
	opts  Options
	lines []line
	next  atomic.Uint32
}

// line is the place of one connection.
type line struct {
	turn chan struct{} // held while dialling
	mu   sync.Mutex    // guards all below
	conn *Conn
	shut bool
}

// NewClient is a client of n connections.
func NewClient(dial Dialer, n int, opts Options) *Client {
	c := &Client{dial: dial, opts: opts, lines: make([]line, max(n, 1))}
	for i := range c.lines {
		c.lines[i].turn = make(chan struct{}, 1)
	}
	return c
}

// Conn is the i-th connection, counted round; it is dialled if need be.
func (c *Client) Conn(ctx context.Context, i int) (*Conn, error) {
	l := &c.lines[i%len(c.lines)]
	if conn := l.current(); conn != nil {
		return conn, nil
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, Ended(ctx)
	}
	if conn := l.current(); conn != nil {
		return conn, nil
	}
	nc, err := c.dial(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, Ended(ctx)
		}
		return nil, &BrokenError{err}
	}
	conn := NewConn(nc, c.opts)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut {
		_ = conn.Close() // nobody used it
		return nil, &BrokenError{net.ErrClosed}
	}
	l.conn = conn
	return conn, nil
}

// Ended is the error of a context that is over: its own, and why.
func Ended(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != ctx.Err() { //nolint:errorlint // it is set as it is
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}

func (l *line) current() *Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil && !l.conn.Broken() {
		return l.conn
	}
	return nil
}

// Next is the number of a connection, each in its turn.
func (c *Client) Next() int { return int(c.next.Add(1) & 0xffff) }

// Send sends a message on the i-th connection and waits for its answer. If the
// connection breaks, the same message is sent once more on a new one; a server that
// keeps answers by transaction id, or by what the message says, does not do it twice.
//
// When ctx ends first, the call that is still under way comes beside the error.
func (c *Client) Send(ctx context.Context, i int, msg *Encoder) (*Reply, *Call, error) {
	for try := 0; ; try++ {
		conn, err := c.Conn(ctx, i)
		if err != nil {
			return nil, nil, err
		}
		call, err := conn.Start(msg)
		if err == nil {
			var reply *Reply
			if reply, err = call.Wait(ctx); err == nil {
				return reply, call, nil
			}
			if ctx.Err() != nil {
				return nil, call, Ended(ctx)
			}
		}
		var broken *BrokenError
		if !errors.As(err, &broken) || try > 0 {
			return nil, nil, err
		}
	}
}

// Call sends a message on one of the connections and waits for its answer.
func (c *Client) Call(ctx context.Context, msg *Encoder) (*Reply, error) {
	conn, err := c.Conn(ctx, c.Next())
	if err != nil {
		return nil, err
	}
	call, err := conn.Start(msg)
	if err != nil {
		return nil, err
	}
	return call.Wait(ctx)
}

// Close breaks all connections, for good.
func (c *Client) Close() error {
	for i := range c.lines {
		l := &c.lines[i]
		l.mu.Lock()
		l.shut = true
		if l.conn != nil {
			_ = l.conn.Close() // it always works
		}
		l.mu.Unlock()
	}
	return nil
}

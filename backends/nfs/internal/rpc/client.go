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

// Client is a set of connections to one server. It opens them when needed and replaces broken ones.
// Its methods are safe for concurrent use.
type Client struct {
	dial  Dialer
	opts  Options
	lines []line
	next  atomic.Uint32
}

// line is the place of one connection.
type line struct {
	turn chan struct{} // held while dialling
	mu   sync.Mutex    // guards the fields below
	conn *Conn
	shut bool
}

// NewClient returns a client with n connections.
func NewClient(dial Dialer, n int, opts Options) *Client {
	c := &Client{dial: dial, opts: opts, lines: make([]line, max(n, 1))}
	for i := range c.lines {
		c.lines[i].turn = make(chan struct{}, 1)
	}
	return c
}

// Conn returns connection i modulo n, and dials it if necessary.
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
		_ = conn.Close() // unused
		return nil, &BrokenError{net.ErrClosed}
	}
	l.conn = conn
	return conn, nil
}

// Ended returns the error of a context that has ended, together with its cause.
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

// Next returns the numbers of the connections in turn.
func (c *Client) Next() int { return int(c.next.Add(1) & 0xffff) }

// Send sends a message on connection i and waits for the response. If the connection breaks, Send
// sends the same message once more on a new one. A server that caches replies, by transaction id
// or by contents of the message such as a session slot, does not execute it twice.
//
// If ctx ends first, Send returns the pending call together with the error.
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

// Call sends a message on the next connection and waits for the response.
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

// Close closes all connections for good.
func (c *Client) Close() error {
	for i := range c.lines {
		l := &c.lines[i]
		l.mu.Lock()
		l.shut = true
		if l.conn != nil {
			_ = l.conn.Close() // never fails
		}
		l.mu.Unlock()
	}
	return nil
}

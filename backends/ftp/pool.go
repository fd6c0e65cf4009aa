package ftp

import (
	"context"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

const (
	// refusedFor is how long a rejected login is not repeated.
	refusedFor = 30 * time.Second
	// fewerFor is how long one connection less is opened after the server accepted no more.
	fewerFor = time.Minute
	// restedFor is how long a connection may have been idle before it is tested.
	restedFor = 5 * time.Second
)

// pool holds the connections with a server. Each has one user at a time.
type pool struct {
	d     *dialer
	turns chan struct{} // a token for each connection that may be in use

	mu      sync.Mutex // guards the fields below
	idle    []*conn
	open    int // connections, also those in use
	closed  bool
	refused error
	until   time.Time // when refused expires
}

func newPool(d *dialer) *pool {
	p := &pool{d: d, turns: make(chan struct{}, d.conns)}
	for range d.conns {
		p.turns <- struct{}{}
	}
	return p
}

// get returns a connection, which ends with ctx. The caller passes it to put.
func (p *pool) get(ctx context.Context) (*conn, error) {
	for {
		select {
		case <-p.turns:
		case <-ctx.Done():
			return nil, fileshare.Ended(ctx, "open", "")
		}
		c, others, err := p.take(ctx)
		switch {
		case err == nil:
			c.stop = context.AfterFunc(ctx, func() { _ = c.raw.Close() }) // pending calls then fail
			return c, nil
		case full(err) && others:
			// The token is kept: there is one connection less for a while.
			p.d.log.Debug("the FTP server accepts no more connections", "error", err)
			time.AfterFunc(fewerFor, p.turn)
			continue
		}
		p.turn()
		return nil, err
	}
}

func (p *pool) turn() { p.turns <- struct{}{} }

// take returns an idle connection that works, or else a new one. others reports whether there are
// other connections.
func (p *pool) take(ctx context.Context) (_ *conn, others bool, err error) {
	for {
		c, err := p.rested()
		if err != nil {
			return nil, false, err
		}
		if c == nil {
			break
		}
		if time.Since(c.idle) < restedFor {
			return c, false, nil
		}
		stop := context.AfterFunc(ctx, func() { _ = c.raw.Close() })
		_, err = c.command([]int{codeOK}, "NOOP")
		if stop() && err == nil {
			return c, false, nil
		}
		p.drop(c)
	}
	c, err := p.d.dial(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if backends.KindOf(err) == backends.Permission {
			p.refused, p.until = err, time.Now().Add(refusedFor)
		}
		return nil, p.open > 0, err
	}
	p.open++
	return c, false, nil
}

// rested returns an idle connection, or nil, or an error if none may be opened.
func (p *pool) rested() (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, backends.Errorf(backends.Invalid, "open", "", "the store is closed")
	}
	if last := len(p.idle) - 1; last >= 0 {
		c := p.idle[last]
		p.idle = p.idle[:last]
		return c, nil
	}
	if time.Now().Before(p.until) {
		return nil, p.refused
	}
	return nil, nil
}

// put returns a connection. When one was lost, the idle ones are closed, too: the server may have
// been restarted.
func (p *pool) put(c *conn) {
	if !c.stop() {
		c.dead, c.lost = true, false // the context has ended
	}
	c.idle = time.Now()
	p.mu.Lock()
	switch {
	case c.dead || p.closed:
		c.shut()
		p.open--
		if c.lost {
			p.shutIdle()
		}
	default:
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	p.turn()
}

// shutIdle closes all idle connections. The caller holds mu.
func (p *pool) shutIdle() {
	for _, c := range p.idle {
		c.shut()
	}
	p.open -= len(p.idle)
	p.idle = nil
}

// drop closes a connection.
func (p *pool) drop(c *conn) {
	c.shut()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
}

// close closes all idle connections; those in use are closed when they are returned.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.shutIdle()
}

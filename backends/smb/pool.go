package smb

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stager-dev/stager/backends"
)

// sessions is the number of sessions of a pool. Two are faster than one; more than two are not
// faster than two.
const sessions = 2

// refusedFor is how long a refused login is not retried. Servers lock accounts after some wrong
// passwords.
const refusedFor = 30 * time.Second

// pool holds the sessions of a share and replaces those that have ended.
type pool struct {
	dialer *dialer
	places [sessions]chan *session // each holds one session, which may be nil or ended
	far    atomic.Bool             // the last new session measured a distant server

	mu      sync.Mutex // guards the fields below
	next    int
	closed  bool
	refused error
	until   time.Time // when refused expires
}

func newPool(d *dialer) *pool {
	p := &pool{dialer: d}
	for i := range p.places {
		p.places[i] = make(chan *session, 1)
		p.places[i] <- nil
	}
	return p
}

// get returns a live session. Callers get the sessions in turn.
func (p *pool) get(ctx context.Context) (*session, error) {
	p.mu.Lock()
	i := p.next
	p.next = (p.next + 1) % sessions
	p.mu.Unlock()
	var s *session
	select {
	case s = <-p.places[i]:
	case <-ctx.Done():
		return nil, ended(ctx, "open", "")
	}
	defer func() { p.places[i] <- s }()
	if s != nil && s.alive() {
		return s, nil
	}
	if err := p.mayDial(); err != nil {
		return nil, err
	}
	fresh, err := p.dialer.dial(ctx)
	if err != nil {
		p.remember(err)
		return nil, err
	}
	if s != nil {
		p.dialer.log.Info("reconnected to the share", "server", p.dialer.address, "share", p.dialer.share, "after", context.Cause(s.ctx))
	}
	s = fresh
	p.far.Store(s.roundTrip > near)
	return s, nil
}

func (p *pool) mayDial() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return backends.Errorf(backends.Invalid, "open", "", "the store is closed")
	}
	if time.Now().Before(p.until) {
		return p.refused
	}
	return nil
}

func (p *pool) remember(err error) {
	if backends.KindOf(err) != backends.Permission {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused, p.until = err, time.Now().Add(refusedFor)
}

// close ends all sessions. Pending calls fail.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	for _, place := range p.places {
		s := <-place
		if s != nil {
			s.close()
		}
		place <- nil
	}
}

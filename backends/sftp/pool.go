package sftp

import (
	"context"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
)

// refusedFor is how long a rejected login is not repeated. Servers block clients after some wrong
// passwords.
const refusedFor = 30 * time.Second

// pool holds the sessions with a server and replaces those that have ended.
type pool struct {
	dialer *dialer
	places []chan *session // each holds one session, which may be nil or ended

	mu      sync.Mutex // guards the fields below
	busy    []int      // uses of each place
	closed  bool
	refused error
	until   time.Time // when refused expires
}

func newPool(d *dialer) *pool {
	p := &pool{dialer: d, places: make([]chan *session, d.conns), busy: make([]int, d.conns)}
	for i := range p.places {
		p.places[i] = make(chan *session, 1)
		p.places[i] <- nil
	}
	return p
}

// hold returns a live session that no other stream uses, or else the one with the fewest streams.
// The caller calls release when its stream has ended.
func (p *pool) hold(ctx context.Context) (s *session, release func(), err error) {
	p.mu.Lock()
	i := 0
	for j, n := range p.busy {
		if n < p.busy[i] {
			i = j
		}
	}
	p.busy[i]++
	p.mu.Unlock()
	release = sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.busy[i]--
	})
	s, err = p.at(ctx, i)
	if backends.KindOf(err) == backends.Unavailable && err != nil {
		// Some servers allow fewer connections.
		if other := p.idle(i); other != nil {
			return other, release, nil
		}
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return s, release, nil
}

// idle returns a live session of another place, or nil.
func (p *pool) idle(except int) *session {
	for i, place := range p.places {
		if i == except {
			continue
		}
		select {
		case s := <-place:
			place <- s
			if s != nil && s.alive() {
				return s
			}
		default: // it is connecting
		}
	}
	return nil
}

// get returns a live session for a short call.
func (p *pool) get(ctx context.Context) (*session, error) {
	s, release, err := p.hold(ctx)
	if err == nil {
		release()
	}
	return s, err
}

// at returns the live session of a place.
func (p *pool) at(ctx context.Context, i int) (*session, error) {
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
		p.dialer.log.Info("reconnected to the SSH server", "server", p.dialer.address, "after", context.Cause(s.ctx))
	}
	s = fresh
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

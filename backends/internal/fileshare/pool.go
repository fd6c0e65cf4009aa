package fileshare

import (
	"context"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
)

// refusedFor is how long a rejected login is not repeated. Servers block clients after some wrong
// passwords.
const refusedFor = 30 * time.Second

// A Connection is what a Pool needs to know of a session: a type that embeds [*Session].
type Connection interface {
	Alive() bool
	Err() error
	Close()
}

// A Pool holds the sessions with a server and replaces those that have ended.
type Pool[S Connection] struct {
	dial   func(ctx context.Context, after error) (S, error)
	places []chan slot[S] // each holds one slot

	mu      sync.Mutex // guards the fields below
	busy    []int      // streams that hold each place
	turn    int        // place of the next call of Next
	closed  bool
	refused error
	until   time.Time // when refused expires
}

// slot is the session of a place, if it was ever opened.
type slot[S any] struct {
	session S
	opened  bool
}

// NewPool returns a pool of n sessions. It opens them on demand by dial; after is why the session
// that a new one replaces has ended, or nil.
func NewPool[S Connection](n int, dial func(ctx context.Context, after error) (S, error)) *Pool[S] {
	p := &Pool[S]{dial: dial, places: make([]chan slot[S], n), busy: make([]int, n)}
	for i := range p.places {
		p.places[i] = make(chan slot[S], 1)
		p.places[i] <- slot[S]{}
	}
	return p
}

// Hold returns a live session that no other stream holds, or else the one with the fewest streams.
// The caller calls release when its stream has ended.
func (p *Pool[S]) Hold(ctx context.Context) (s S, release func(), err error) {
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
	if err != nil && backends.KindOf(err) == backends.Unavailable {
		// Some servers allow fewer connections.
		if other, ok := p.idle(i); ok {
			return other, release, nil
		}
	}
	if err != nil {
		release()
		return s, nil, err
	}
	return s, release, nil
}

// idle returns a live session of another place.
func (p *Pool[S]) idle(except int) (s S, ok bool) {
	for i, place := range p.places {
		if i == except {
			continue
		}
		select {
		case there := <-place:
			place <- there
			if there.opened && there.session.Alive() {
				return there.session, true
			}
		default: // it is connecting
		}
	}
	return s, false
}

// Get returns a live session for a short call: the one that Hold would return.
func (p *Pool[S]) Get(ctx context.Context) (S, error) {
	s, release, err := p.Hold(ctx)
	if err == nil {
		release()
	}
	return s, err
}

// Next returns a live session for a call or a stream. Callers get the sessions in turn.
func (p *Pool[S]) Next(ctx context.Context) (S, error) {
	p.mu.Lock()
	i := p.turn
	p.turn = (p.turn + 1) % len(p.places)
	p.mu.Unlock()
	return p.at(ctx, i)
}

// at returns the live session of a place.
func (p *Pool[S]) at(ctx context.Context, i int) (_ S, err error) {
	var there slot[S]
	select {
	case there = <-p.places[i]:
	case <-ctx.Done():
		return there.session, Ended(ctx, "open", "")
	}
	defer func() { p.places[i] <- there }()
	var after error
	if there.opened {
		if there.session.Alive() {
			return there.session, nil
		}
		after = there.session.Err()
	}
	if err := p.mayDial(); err != nil {
		return there.session, err
	}
	s, err := p.dial(ctx, after)
	if err != nil {
		p.remember(err)
		return s, err
	}
	there = slot[S]{s, true}
	return s, nil
}

func (p *Pool[S]) mayDial() error {
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

func (p *Pool[S]) remember(err error) {
	if backends.KindOf(err) != backends.Permission {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused, p.until = err, time.Now().Add(refusedFor)
}

// RefusedUntil returns until when a rejected login is not repeated; the zero time if none was.
func (p *Pool[S]) RefusedUntil() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until
}

// Close ends all sessions. Pending calls fail.
func (p *Pool[S]) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	for _, place := range p.places {
		if there := <-place; there.opened {
			there.session.Close()
		}
		place <- slot[S]{}
	}
}

package smb

import (
	"context"
	"sync/atomic"

	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// sessions is the number of sessions of a pool. Two are faster than one; more than two are not
// faster than two.
const sessions = 2

// pool holds the sessions of a share.
type pool struct {
	*fileshare.Pool[*session]
	dialer *dialer
	far    atomic.Bool // the last new session measured a distant server
	ids    ids
}

func newPool(d *dialer) *pool {
	p := &pool{dialer: d}
	p.Pool = fileshare.NewPool(sessions, func(ctx context.Context, after error) (*session, error) {
		s, err := d.dial(ctx, after)
		if err == nil {
			p.far.Store(s.roundTrip > near)
		}
		return s, err
	})
	return p
}

// get returns a live session. Callers get the sessions in turn.
func (p *pool) get(ctx context.Context) (*session, error) { return p.Next(ctx) }

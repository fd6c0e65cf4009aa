package nfs4

import (
	"context"
	"errors"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"

	"github.com/stager-dev/stager/backends/nfs/internal/remote"
	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

// do sends a request until it gets a response. It changes the connection or the session and waits
// as needed. The results are positioned after those of SEQUENCE.
func (c *Client) do(ctx context.Context, q *compound) (*results, error) {
	var pause remote.Wait
	s, err := c.session(ctx, nil)
	for tries := 0; err == nil; tries++ {
		r, lost, err := c.within(ctx, s, q)
		if !lost {
			return r, err
		}
		c.cfg.Log.Debug("session lost, creating a new one", "error", err)
		if tries > 0 {
			if err := pause.Sleep(ctx); err != nil {
				return nil, err
			}
		}
		if s, err = c.session(ctx, s); err != nil {
			return nil, err
		}
	}
	return nil, err
}

// within sends a request in a session until the server no longer asks the client to wait. lost
// reports that the session is lost.
func (c *Client) within(ctx context.Context, s *session, q *compound) (r *results, lost bool, err error) {
	var wait remote.Wait
	for {
		r, lost, err := c.once(ctx, s, q)
		if err != nil {
			return nil, lost, err
		}
		switch nfsv4.Nfsstat4(r.status) {
		case nfsv4.NFS4ERR_DELAY, nfsv4.NFS4ERR_GRACE:
		case nfsv4.NFS4ERR_RETRY_UNCACHED_REP, nfsv4.NFS4ERR_SEQ_FALSE_RETRY:
			// The server executed the request but did not cache the response, as requested.
			if q.keep {
				r.Release()
				return nil, false, &rpc.BrokenError{Err: errors.New("the response was lost with the connection")}
			}
		default:
			return r, false, nil
		}
		r.Release()
		q.Renew()
		if err := wait.Sleep(ctx); err != nil {
			return nil, false, err
		}
	}
}

// once sends a request in a session, on a free slot. lost reports that the session is lost.
func (c *Client) once(ctx context.Context, s *session, q *compound) (r *results, lost bool, err error) {
	var l *slot
	select {
	case l = <-s.free:
	case <-ctx.Done():
		return nil, false, rpc.Ended(ctx)
	}
	if l.dirty {
		if lost, err := c.resolve(ctx, s, l); err != nil {
			s.free <- l
			return nil, lost, err
		}
	}
	q.setSlot(s, l)
	reply, call, err := c.cfg.RPC.Send(ctx, int(l.id), q.Encoder)
	if err != nil && call != nil {
		go c.park(s, l, call)
		return nil, false, err
	}
	if err != nil {
		l.dirty = true
		s.free <- l
		return nil, false, err
	}
	defer func() { s.free <- l }()
	q.replied = call
	r = begin(reply)
	flags, err := r.sequence()
	status := remote.StatusOf(err)
	switch nfsv4.Nfsstat4(status) {
	case nfsv4.NFS4_OK:
		if err == nil {
			l.seq++
			c.noticed(s, flags)
			return r, false, nil
		}
		l.dirty = true // the response makes no sense
	case nfsv4.NFS4ERR_DELAY: // the number is not used
		return r, false, nil
	case nfsv4.NFS4ERR_RETRY_UNCACHED_REP, nfsv4.NFS4ERR_SEQ_FALSE_RETRY:
		l.seq++
		return r, false, nil
	}
	r.Release()
	return nil, sessionLost(status), err
}

// sequence reads the results of SEQUENCE.
func (r *results) sequence() (flags uint32, err error) {
	if err := r.next(nfsv4.OP_SEQUENCE); err != nil {
		return 0, err
	}
	r.Fixed(16 + 4*4)
	flags = r.Uint32()
	return flags, remote.Malformed(r.Err())
}

// park keeps a slot until the response to an abandoned request arrives.
func (c *Client) park(s *session, l *slot, call *rpc.Call) {
	reply, err := call.Wait(context.Background()) // a silent connection ends by itself
	l.dirty = true
	if err == nil {
		r := begin(reply)
		if r.next(nfsv4.OP_SEQUENCE) == nil {
			l.dirty = false
			l.seq++
		}
		r.Release()
	}
	s.free <- l
}

// resolve makes the number of a slot known again. Whether or not the server received the last
// request with this number, afterwards the number is used.
func (c *Client) resolve(ctx context.Context, s *session, l *slot) (lost bool, err error) {
	var wait remote.Wait
	for {
		q := c.newCompound(0)
		q.setSlot(s, l)
		reply, _, err := c.cfg.RPC.Send(ctx, int(l.id), q.Encoder)
		if err != nil {
			return false, err
		}
		r := begin(reply)
		err = r.next(nfsv4.OP_SEQUENCE)
		r.Release()
		switch status := remote.StatusOf(err); nfsv4.Nfsstat4(status) {
		case nfsv4.NFS4_OK, nfsv4.NFS4ERR_RETRY_UNCACHED_REP, nfsv4.NFS4ERR_SEQ_FALSE_RETRY:
			if err != nil && status == remote.OK {
				return false, err
			}
			l.seq++
			l.dirty = false
			return false, nil
		case nfsv4.NFS4ERR_DELAY: // the request is still being executed
			if err := wait.Sleep(ctx); err != nil {
				return false, err
			}
		default:
			return sessionLost(status), err
		}
	}
}

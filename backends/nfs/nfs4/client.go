package nfs4

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"

	"github.com/stager-dev/stager/backends/nfs/remote"
	"github.com/stager-dev/stager/backends/nfs/rpc"
)

// Config says how a server is spoken to.
type Config struct {
	RPC        *rpc.Client // owned by the Client
	Conns      int         // how many connections that has
	Credential rpc.Credential
	Slots      int // requests at once; the server may grant fewer
	BlockSize  int // bytes of a read or write; the server may grant fewer
	Log        *slog.Logger
}

// Client speaks to one server in one session. It is a remote.Tree.
type Client struct {
	cfg      Config
	owner    []byte
	verifier nfsv4.Verifier4
	opens    atomic.Uint64 // counts open owners: each file is opened by one of its own
	lease    atomic.Int64
	sizes    atomic.Uint64 // what the session grants: read<<32 | write
	stop     context.CancelFunc
	stopped  chan struct{}

	turn      chan struct{} // guards all below; a channel, so that waiting obeys contexts
	sess      *session
	id        uint64 // the client id; 0: none
	seq       uint32 // of the next CREATE_SESSION
	epoch     uint64 // counts client ids
	reclaimed uint64 // epoch of which RECLAIM_COMPLETE was sent
}

var _ remote.Tree = (*Client)(nil)

// Dial introduces a client to the server and opens a session.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Client{cfg: cfg, owner: append([]byte("stager "), random(16)...), turn: make(chan struct{}, 1), stopped: make(chan struct{})}
	copy(c.verifier[:], random(8))
	c.lease.Store(int64(time.Minute))
	s, err := c.session(ctx, nil)
	if err != nil {
		return nil, err
	}
	c.sizes.Store(uint64(min(s.maxRead, cfg.BlockSize))<<32 | uint64(min(s.maxWrite, cfg.BlockSize)))
	alive, stop := context.WithCancel(context.Background())
	c.stop = stop
	go func() {
		defer close(c.stopped)
		c.keepAlive(alive)
	}()
	return c, nil
}

// Sizes implements remote.Tree.
func (c *Client) Sizes() (read, write int) {
	both := c.sizes.Load()
	return int(both >> 32), int(both & (1<<32 - 1))
}

// Close ends session and connections.
func (c *Client) Close() error {
	c.stop()
	<-c.stopped
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	select {
	case c.turn <- struct{}{}:
		c.farewell(ctx)
		<-c.turn
	case <-ctx.Done():
	}
	return c.cfg.RPC.Close()
}

// do sends a request until it is answered: by another connection, in another session,
// after a pause, as need be. The results stand behind SEQUENCE's.
func (c *Client) do(ctx context.Context, q *compound) (*results, error) {
	wait := newWait()
	s, err := c.session(ctx, nil)
	if err != nil {
		return nil, err
	}
	for range 100 {
		r, lost, err := c.once(ctx, s, q)
		if err != nil && !lost {
			return nil, err
		}
		if lost {
			c.cfg.Log.Debug("the server forgot the session; making another", "error", err)
			if s, err = c.session(ctx, s); err != nil {
				return nil, err
			}
			continue
		}
		if r.status != remote.Delay && r.status != remote.Grace {
			return r, nil
		}
		r.Release()
		q.Renew()
		if err := wait.sleep(ctx); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("the server forgets each session as soon as it is made")
}

// once sends a request in a session. lost says that the session is.
func (c *Client) once(ctx context.Context, s *session, q *compound) (r *results, lost bool, err error) {
	var l *slot
	select {
	case l = <-s.free:
	case <-ctx.Done():
		return nil, false, rpc.Ended(ctx)
	}
	if l.dirty {
		if lost, err := c.settle(ctx, s, l); err != nil {
			s.free <- l
			return nil, lost, err
		}
	}
	q.setSlot(s, l)
	var reply *rpc.Reply
	err = c.resend(ctx, int(l.id), q, func(call *rpc.Call, r *rpc.Reply) { reply, q.answered = r, call })
	var parked *parkedError
	if errors.As(err, &parked) {
		go c.park(s, l, parked.call)
		return nil, false, parked.Err
	}
	if err != nil {
		l.dirty = true
		s.free <- l
		return nil, false, err
	}
	defer func() { s.free <- l }()
	r = begin(reply)
	err = r.next(nfsv4.OP_SEQUENCE)
	status := remote.StatusOf(err)
	switch nfsv4.Nfsstat4(status) {
	case nfsv4.NFS4_OK:
		if err == nil {
			r.Fixed(16 + 5*4)
			err = malformed(r.Err())
		}
		l.seq++
	case nfsv4.NFS4ERR_DELAY:
		return r, false, nil // seq is not used
	case nfsv4.NFS4ERR_RETRY_UNCACHED_REP, nfsv4.NFS4ERR_SEQ_FALSE_RETRY:
		l.seq++
		err = &rpc.BrokenError{Err: errors.New("the answer was lost with a connection")}
	}
	if err != nil {
		r.Release()
		return nil, sessionLost(status), err
	}
	return r, false, nil
}

// parkedError is the end of a caller's context while a call is under way.
type parkedError struct {
	call *rpc.Call
	Err  error
}

func (e *parkedError) Error() string { return e.Err.Error() }
func (e *parkedError) Unwrap() error { return e.Err }

// resend sends a message, and once more on a new connection if the first broke.
func (c *Client) resend(ctx context.Context, line int, q *compound, got func(*rpc.Call, *rpc.Reply)) error {
	for try := 0; ; try++ {
		conn, err := c.cfg.RPC.Conn(ctx, line)
		if err != nil {
			return err
		}
		call, err := conn.Start(q.Encoder)
		var reply *rpc.Reply
		if err == nil {
			if reply, err = call.Wait(ctx); err == nil {
				got(call, reply)
				return nil
			}
		}
		var broken *rpc.BrokenError
		switch {
		case call != nil && ctx.Err() != nil:
			return &parkedError{call, rpc.Ended(ctx)}
		case !errors.As(err, &broken) || try > 0:
			return err
		}
	}
}

// park keeps a slot until the answer to a request came that nobody waits for.
func (c *Client) park(s *session, l *slot, call *rpc.Call) {
	reply, err := call.Wait(context.Background()) // a connection does not stay silent for ever
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

// settle makes a slot's number known: whether or not the server saw the request that
// it was used for, it has seen it after this.
func (c *Client) settle(ctx context.Context, s *session, l *slot) (lost bool, err error) {
	wait := newWait()
	for {
		q := c.newCompound(0)
		q.setSlot(s, l)
		var reply *rpc.Reply
		if err := c.resend(ctx, int(l.id), q, func(_ *rpc.Call, r *rpc.Reply) { reply = r }); err != nil {
			var parked *parkedError
			if errors.As(err, &parked) {
				err = parked.Err
			}
			return false, err
		}
		r := begin(reply)
		err := r.next(nfsv4.OP_SEQUENCE)
		r.Release()
		switch status := remote.StatusOf(err); nfsv4.Nfsstat4(status) {
		case nfsv4.NFS4_OK, nfsv4.NFS4ERR_RETRY_UNCACHED_REP, nfsv4.NFS4ERR_SEQ_FALSE_RETRY:
			if err != nil && status == remote.OK {
				return false, err
			}
			l.seq++
			l.dirty = false
			return false, nil
		case nfsv4.NFS4ERR_DELAY: // the request is still being carried out
			if err := wait.sleep(ctx); err != nil {
				return false, err
			}
		default:
			return sessionLost(status), err
		}
	}
}

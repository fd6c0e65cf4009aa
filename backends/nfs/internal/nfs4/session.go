package nfs4

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"

	"github.com/stager-dev/stager/backends/nfs/internal/remote"
	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

// session is a session with its slots. The server caches the last response of each.
type session struct {
	id       nfsv4.Sessionid4
	highest  uint32 // highest slot number
	free     chan *slot
	maxWrite int // bytes of a request
	maxRead  int // bytes of a response
	maxOps   int
	epoch    uint64 // of the client id
}

// slot carries one request at a time.
type slot struct {
	id    uint32
	seq   uint32
	dirty bool // it is unknown whether the server has received seq
}

// sessionLost reports whether a status requires another session.
func sessionLost(s remote.Status) bool {
	switch nfsv4.Nfsstat4(s) {
	case nfsv4.NFS4ERR_BADSESSION, nfsv4.NFS4ERR_DEADSESSION, nfsv4.NFS4ERR_STALE_CLIENTID,
		nfsv4.NFS4ERR_SEQ_MISORDERED, nfsv4.NFS4ERR_BADSLOT, nfsv4.NFS4ERR_CONN_NOT_BOUND_TO_SESSION:
		return true
	}
	return false
}

// session returns the current session, or another one after old was lost.
func (c *Client) session(ctx context.Context, old *session) (*session, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, rpc.Ended(ctx)
	}
	if c.sess != nil && c.sess != old {
		return c.sess, nil
	}
	next, err := c.newSession(ctx)
	if err != nil {
		return nil, err
	}
	c.sess = next
	return next, nil
}

// newSession creates a session for the client id. If the server no longer knows the id, it
// registers a new one. The caller holds turn.
func (c *Client) newSession(ctx context.Context) (*session, error) {
	for range 3 {
		if c.id == 0 {
			if err := c.exchangeID(ctx); err != nil {
				return nil, err
			}
		}
		s, err := c.createSession(ctx)
		switch nfsv4.Nfsstat4(remote.StatusOf(err)) {
		case nfsv4.NFS4ERR_STALE_CLIENTID:
			c.id = 0
			continue
		case nfsv4.NFS4ERR_SEQ_MISORDERED:
			// Only a new verifier, that is a new client instance, resets the sequence.
			c.id, c.verifier = 0, newVerifier()
			continue
		}
		if err != nil {
			return nil, err
		}
		lost, err := c.begun(ctx, s)
		if !lost {
			return s, err
		}
	}
	return nil, errors.New("the server forgets its clients immediately")
}

// exchangeID registers the client.
func (c *Client) exchangeID(ctx context.Context) error {
	q := c.bareCompound(0)
	args := nfsv4.ExchangeId4args{
		EiaClientowner:  nfsv4.ClientOwner4{CoVerifier: c.verifier, CoOwnerid: []byte(c.owner)},
		EiaFlags:        nfsv4.EXCHGID4_FLAG_USE_NON_PNFS,
		EiaStateProtect: &nfsv4.StateProtect4A_SP4_NONE{},
	}
	q.add(&nfsv4.NfsArgop4_OP_EXCHANGE_ID{OpexchangeId: args})
	r, err := c.plain(ctx, q)
	if err != nil {
		return err
	}
	defer r.Release()
	if err := r.next(nfsv4.OP_EXCHANGE_ID); err != nil {
		return err
	}
	var ok nfsv4.ExchangeId4resok
	r.Get(&ok)
	if r.Err() != nil {
		return remote.Malformed(r.Err())
	}
	c.id, c.seq = ok.EirClientid, ok.EirSequenceid
	c.epoch++
	return nil
}

// headroom is the size of a message without its file data.
const headroom = 4 << 10

func (c *Client) createSession(ctx context.Context) (*session, error) {
	q := c.bareCompound(0)
	most := uint32(c.cfg.BlockSize + headroom)
	args := nfsv4.CreateSession4args{
		CsaClientid: c.id, CsaSequence: c.seq,
		CsaForeChanAttrs: nfsv4.ChannelAttrs4{
			CaMaxrequestsize: most, CaMaxresponsesize: most, CaMaxresponsesizeCached: 4 << 10,
			CaMaxoperations: 64, CaMaxrequests: uint32(c.cfg.Slots),
		},
		CsaBackChanAttrs: nfsv4.ChannelAttrs4{
			CaMaxrequestsize: 4 << 10, CaMaxresponsesize: 4 << 10, CaMaxoperations: 2, CaMaxrequests: 1,
		},
		CsaCbProgram: 1 << 30, // unused: the client accepts no delegations
		CsaSecParms:  []nfsv4.CallbackSecParms4{&nfsv4.CallbackSecParms4_AUTH_NONE{}},
	}
	q.add(&nfsv4.NfsArgop4_OP_CREATE_SESSION{OpcreateSession: args})
	r, err := c.plain(ctx, q)
	if err != nil {
		return nil, err
	}
	defer r.Release()
	if err := r.next(nfsv4.OP_CREATE_SESSION); err != nil {
		return nil, err
	}
	var ok nfsv4.CreateSession4resok
	r.Get(&ok)
	if r.Err() != nil {
		return nil, remote.Malformed(r.Err())
	}
	c.seq++
	fore := ok.CsrForeChanAttrs
	s := &session{
		id: ok.CsrSessionid, epoch: c.epoch, maxOps: int(fore.CaMaxoperations),
		maxRead: int(fore.CaMaxresponsesize) - headroom, maxWrite: int(fore.CaMaxrequestsize) - headroom,
	}
	slots := min(int(fore.CaMaxrequests), c.cfg.Slots)
	if slots < 1 || s.maxOps < 16 || s.maxRead < 4<<10 || s.maxWrite < 4<<10 {
		return nil, remote.Malformed(fmt.Errorf("it grants %d concurrent requests of %d operations and %d bytes", slots, s.maxOps, s.maxWrite))
	}
	s.highest = uint32(slots - 1)
	s.free = make(chan *slot, slots)
	for i := range slots {
		s.free <- &slot{id: uint32(i), seq: 1}
	}
	return s, nil
}

// begun completes the start of a session. It sends RECLAIM_COMPLETE: no state of an earlier client
// id is reclaimed, so the grace period ends for this client. It also requests the lease time.
func (c *Client) begun(ctx context.Context, s *session) (lost bool, err error) {
	if c.reclaimed != s.epoch {
		if lost, err := c.reclaimComplete(ctx, s); err != nil {
			return lost, err
		}
		c.reclaimed = s.epoch
	}
	q := c.newCompound(0)
	q.op(nfsv4.OP_PUTROOTFH)
	q.op(nfsv4.OP_GETATTR)
	q.bitmap(1 << nfsv4.FATTR4_LEASE_TIME)
	r, lost, err := c.within(ctx, s, q)
	if err != nil {
		return lost, err
	}
	defer r.Release()
	if r.next(nfsv4.OP_PUTROOTFH) == nil && r.next(nfsv4.OP_GETATTR) == nil && r.Uint32() == 1 && r.Uint32() != 0 && r.Uint32() == 4 {
		if lease := time.Duration(r.Uint32()) * time.Second; lease > 0 && r.Err() == nil {
			c.lease.Store(int64(lease))
		}
	}
	return false, nil
}

func (c *Client) reclaimComplete(ctx context.Context, s *session) (lost bool, err error) {
	q := c.newCompound(0)
	q.add(&nfsv4.NfsArgop4_OP_RECLAIM_COMPLETE{})
	r, lost, err := c.within(ctx, s, q)
	if err != nil {
		return lost, err
	}
	defer r.Release()
	err = r.next(nfsv4.OP_RECLAIM_COMPLETE)
	if remote.StatusOf(err) == remote.Status(nfsv4.NFS4ERR_COMPLETE_ALREADY) {
		err = nil
	}
	return false, err
}

// plain sends a compound outside a session, with backoff.
func (c *Client) plain(ctx context.Context, q *compound) (*results, error) {
	var wait remote.Wait
	for {
		reply, _, err := c.cfg.RPC.Send(ctx, 0, q.Encoder)
		if err != nil {
			return nil, err
		}
		r := begin(reply)
		if r.Err() != nil {
			r.Release()
			return nil, remote.Malformed(r.Err())
		}
		if r.status != remote.Delay && r.status != remote.Grace {
			return r, nil
		}
		r.Release()
		q.Renew()
		if err := wait.Sleep(ctx); err != nil {
			return nil, err
		}
	}
}

// keepAlive renews the lease until the client is closed.
func (c *Client) keepAlive(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(c.lease.Load()) / 3):
		}
		bounded, cancel := context.WithTimeout(ctx, time.Duration(c.lease.Load())/3)
		r, err := c.do(bounded, c.newCompound(0))
		cancel()
		if err == nil {
			r.Release()
		} else {
			c.cfg.Log.Debug("cannot renew the lease", "error", err)
		}
	}
}

// farewell destroys session and client id, so that the server need not wait for the lease.
func (c *Client) farewell(ctx context.Context) {
	if c.sess == nil {
		return
	}
	for _, op := range []nfsv4.NfsArgop4{
		&nfsv4.NfsArgop4_OP_DESTROY_SESSION{OpdestroySession: nfsv4.DestroySession4args{DsaSessionid: c.sess.id}},
		&nfsv4.NfsArgop4_OP_DESTROY_CLIENTID{OpdestroyClientid: nfsv4.DestroyClientid4args{DcaClientid: c.id}},
	} {
		q := c.bareCompound(0)
		q.add(op)
		r, err := c.plain(ctx, q)
		if err != nil {
			return // the lease ends it
		}
		r.Release()
	}
}

// newVerifier returns the identifier of a new client instance.
func newVerifier() (v nfsv4.Verifier4) {
	_, _ = rand.Read(v[:]) // never fails
	return v
}

package nfs4

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"

	"github.com/stager-dev/stager/backends/nfs/internal/remote"
	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

// opened is the result of an OPEN.
type opened struct {
	handle handle
	id     stateid
	fileID uint64
	times  int // number of times the file was opened
}

// file is an open file. It is reopened when the server has lost its state.
type file struct {
	c      *Client
	path   string
	access uint32

	turn chan struct{} // held while reopening
	mu   sync.Mutex    // guards the fields below
	now  opened
}

func (f *file) open() opened {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// opener returns a new open owner. Each OPEN has its own. A server merges the opens of one owner,
// and one CLOSE would then close the file for all.
func (c *Client) opener() nfsv4.StateOwner4 {
	return nfsv4.StateOwner4{Owner: binary.BigEndian.AppendUint64(nil, c.opens.Add(1))}
}

func (q *compound) open(owner nfsv4.StateOwner4, access uint32, how nfsv4.Openflag4, name string) {
	q.add(&nfsv4.NfsArgop4_OP_OPEN{Opopen: nfsv4.Open4args{
		ShareAccess: access | nfsv4.OPEN4_SHARE_ACCESS_WANT_NO_DELEG, ShareDeny: nfsv4.OPEN4_SHARE_DENY_NONE,
		Owner: owner, Openhow: how, Claim: &nfsv4.OpenClaim4_CLAIM_NULL{File: name},
	}})
}

// opened reads the results of OPEN and GETFH.
func (r *results) opened() (opened, error) {
	if err := r.next(nfsv4.OP_OPEN); err != nil {
		return opened{}, err
	}
	var ok nfsv4.Open4resok
	r.Get(&ok)
	if r.Err() != nil {
		return opened{}, remote.Malformed(r.Err())
	}
	var o opened
	binary.BigEndian.PutUint32(o.id[:], ok.Stateid.Seqid)
	copy(o.id[4:], ok.Stateid.Other[:])
	var err error
	o.handle, err = r.handle()
	return o, err
}

// Open implements remote.Tree. One request opens and reads the file and, if once is true, closes
// it.
func (c *Client) Open(ctx context.Context, path string, off int64, n int, once bool) (remote.File, remote.Block, error) {
	dir, name, err := c.parent(ctx, path)
	if err != nil {
		return nil, remote.Block{}, err
	}
	q := c.newCompound(0)
	q.walk(dir)
	q.open(c.opener(), nfsv4.OPEN4_SHARE_ACCESS_READ, &nfsv4.Openflag4_default{Opentype: nfsv4.OPEN4_NOCREATE}, name)
	q.op(nfsv4.OP_GETFH)
	q.read(current, off, n)
	q.getAttr()
	if once {
		q.close(current)
	}
	c.first.Expect(q.Encoder, n)
	r, err := c.do(ctx, q)
	if err != nil {
		return nil, remote.Block{}, err
	}
	keep := false
	defer func() {
		if !keep {
			r.Release()
		}
	}()
	if err := r.walked(dir); err != nil {
		return nil, remote.Block{}, err
	}
	o, err := r.opened()
	if err != nil {
		return nil, remote.Block{}, err
	}
	f := &file{c: c, path: path, access: nfsv4.OPEN4_SHARE_ACCESS_READ, now: o, turn: make(chan struct{}, 1)}
	b, err := r.read(n, &c.first)
	f.now.fileID = b.Attr.FileID
	if err == nil && once {
		err = r.next(nfsv4.OP_CLOSE)
	}
	if err != nil {
		f.closeLater()
		return nil, remote.Block{}, err
	}
	keep = true
	b.Free = r.Release
	if once {
		return nil, b, nil
	}
	return f, b, nil
}

// read reads the results of READ and GETATTR, and records where the bytes of the file are.
func (r *results) read(most int, at *rpc.Place) (b remote.Block, err error) {
	if b.Data, b.EOF, err = r.block(most); err != nil {
		return b, err
	}
	at.Learn(r.Reply, len(b.Data))
	b.Attr, err = r.attr()
	return b, err
}

// Create implements remote.Tree. If its session is lost, the request may be executed twice. The
// second one then finds the file of the first.
func (c *Client) Create(ctx context.Context, path string) (remote.File, error) {
	f := &file{c: c, path: path, access: nfsv4.OPEN4_SHARE_ACCESS_BOTH, turn: make(chan struct{}, 1)}
	var err error
	f.now, err = f.openAs(ctx, &nfsv4.Openflag4_OPEN4_CREATE{
		How: &nfsv4.Createhow4_UNCHECKED4{Createattrs: mode(0o644)},
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// openAs opens the file by name.
func (f *file) openAs(ctx context.Context, how nfsv4.Openflag4) (opened, error) {
	dir, name, err := f.c.parent(ctx, f.path)
	if err != nil {
		return opened{}, err
	}
	q := f.c.newCompound(0)
	q.keep = true
	q.walk(dir)
	q.open(f.c.opener(), f.access, how, name)
	q.op(nfsv4.OP_GETFH)
	q.getAttr()
	r, err := f.c.do(ctx, q)
	if err != nil {
		return opened{}, err
	}
	defer r.Release()
	if err := r.walked(dir); err != nil {
		return opened{}, err
	}
	o, err := r.opened()
	if err != nil {
		return opened{}, err
	}
	a, err := r.attr()
	o.fileID = a.FileID
	return o, err
}

// forgotten reports whether the server no longer has the state of an open file.
func forgotten(s remote.Status) bool {
	switch nfsv4.Nfsstat4(s) {
	case nfsv4.NFS4ERR_BAD_STATEID, nfsv4.NFS4ERR_STALE_STATEID, nfsv4.NFS4ERR_OLD_STATEID, nfsv4.NFS4ERR_FHEXPIRED:
		return true
	}
	return revoked(s)
}

// revoked reports whether the server closed a file and keeps a record of that until the client
// acknowledges it.
func revoked(s remote.Status) bool {
	switch nfsv4.Nfsstat4(s) {
	case nfsv4.NFS4ERR_EXPIRED, nfsv4.NFS4ERR_ADMIN_REVOKED, nfsv4.NFS4ERR_DELEG_REVOKED:
		return true
	}
	return false
}

// reopen opens the file by name, unless another goroutine has done so since was. It returns status
// Stale if the name has another file.
func (f *file) reopen(ctx context.Context, was opened, why remote.Status) error {
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return rpc.Ended(ctx)
	}
	if f.open().times != was.times {
		return nil
	}
	if revoked(why) {
		f.c.acknowledge(ctx, was.id)
	}
	o, err := f.openAs(ctx, &nfsv4.Openflag4_default{Opentype: nfsv4.OPEN4_NOCREATE})
	switch remote.StatusOf(err) {
	case remote.NoEnt, remote.NotDir, remote.IsDir, remote.SymlinkThere, remote.WrongType:
		return &remote.Error{Status: remote.Stale, Op: opName(nfsv4.OP_OPEN)}
	}
	if err != nil {
		return err
	}
	if o.fileID != was.fileID {
		other := &file{c: f.c, path: f.path, now: o}
		other.closeLater()
		return &remote.Error{Status: remote.Stale, Op: opName(nfsv4.OP_OPEN)}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	o.times = was.times + 1
	f.now = o
	return nil
}

// acknowledge frees a revoked stateid. Otherwise every response reports it forever. Errors do not
// matter beyond that.
func (c *Client) acknowledge(ctx context.Context, id stateid) {
	q := c.newCompound(0)
	q.op(nfsv4.OP_FREE_STATEID)
	q.stateid(id)
	if r, err := c.do(ctx, q); err == nil {
		r.Release()
	}
}

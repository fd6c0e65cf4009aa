package nfs4

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"

	"github.com/stager-dev/stager/backends/nfs/remote"
	"github.com/stager-dev/stager/backends/nfs/rpc"
)

// opened is what the server gave for an OPEN.
type opened struct {
	handle handle
	id     stateid
	times  int // that the file was opened
}

// file is an open file. It is opened again when the server forgot it.
type file struct {
	c      *Client
	path   string
	access uint32

	turn chan struct{} // held while opening again
	mu   sync.Mutex    // guards all below
	now  opened
}

func (f *file) open() opened {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// opener names who opens. Each OPEN is of another, for the server puts together what
// one owner opens, and one CLOSE then closes it for all.
func (c *Client) opener() nfsv4.StateOwner4 {
	return nfsv4.StateOwner4{Owner: binary.BigEndian.AppendUint64(nil, c.opens.Add(1))}
}

func (q *compound) open(owner nfsv4.StateOwner4, access uint32, how nfsv4.Openflag4, name string) {
	q.add(&nfsv4.NfsArgop4_OP_OPEN{Opopen: nfsv4.Open4args{
		ShareAccess: access | nfsv4.OPEN4_SHARE_ACCESS_WANT_NO_DELEG, ShareDeny: nfsv4.OPEN4_SHARE_DENY_NONE,
		Owner: owner, Openhow: how, Claim: &nfsv4.OpenClaim4_CLAIM_NULL{File: name},
	}})
}

// opened reads the answers to OPEN and GETFH.
func (r *results) opened() (opened, error) {
	if err := r.next(nfsv4.OP_OPEN); err != nil {
		return opened{}, err
	}
	var ok nfsv4.Open4resok
	r.Get(&ok)
	if r.Err() != nil {
		return opened{}, malformed(r.Err())
	}
	var o opened
	binary.BigEndian.PutUint32(o.id[:], ok.Stateid.Seqid)
	copy(o.id[4:], ok.Stateid.Other[:])
	var err error
	o.handle, err = r.handle()
	return o, err
}

// Open implements remote.Tree: the file is opened, read and, with once, closed by one
// request.
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
	b, err := r.read()
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

// read reads the answers to READ and GETATTR.
func (r *results) read() (b remote.Block, err error) {
	if b.Data, b.EOF, err = r.block(); err != nil {
		return b, err
	}
	b.Attr, err = r.attr()
	return b, err
}

// Create implements remote.Tree.
func (c *Client) Create(ctx context.Context, path string) (remote.File, error) {
	dir, name, err := c.parent(ctx, path)
	if err != nil {
		return nil, err
	}
	q := c.newCompound(0)
	q.keep = true
	q.walk(dir)
	q.open(c.opener(), nfsv4.OPEN4_SHARE_ACCESS_BOTH, &nfsv4.Openflag4_OPEN4_CREATE{
		How: &nfsv4.Createhow4_GUARDED4{Createattrs: mode(0o644)},
	}, name)
	q.op(nfsv4.OP_GETFH)
	r, err := c.do(ctx, q)
	if err != nil {
		return nil, err
	}
	defer r.Release()
	if err := r.walked(dir); err != nil {
		return nil, err
	}
	o, err := r.opened()
	if err != nil {
		return nil, err
	}
	return &file{c: c, path: path, access: nfsv4.OPEN4_SHARE_ACCESS_BOTH, now: o, turn: make(chan struct{}, 1)}, nil
}

// forgotten tells whether the server no longer knows an open file.
func forgotten(s remote.Status) bool {
	switch nfsv4.Nfsstat4(s) {
	case nfsv4.NFS4ERR_BAD_STATEID, nfsv4.NFS4ERR_STALE_STATEID, nfsv4.NFS4ERR_OLD_STATEID, nfsv4.NFS4ERR_EXPIRED,
		nfsv4.NFS4ERR_ADMIN_REVOKED, nfsv4.NFS4ERR_DELEG_REVOKED, nfsv4.NFS4ERR_FHEXPIRED:
		return true
	}
	return false
}

// reopen opens the file by its name, unless somebody else has done it since was.
func (f *file) reopen(ctx context.Context, was opened) error {
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return rpc.Ended(ctx)
	}
	if f.open().times != was.times {
		return nil
	}
	dir, name, err := f.c.parent(ctx, f.path)
	if err != nil {
		return err
	}
	q := f.c.newCompound(0)
	q.walk(dir)
	q.open(f.c.opener(), f.access, &nfsv4.Openflag4_default{Opentype: nfsv4.OPEN4_NOCREATE}, name)
	q.op(nfsv4.OP_GETFH)
	r, err := f.c.do(ctx, q)
	if err != nil {
		return err
	}
	defer r.Release()
	if err := r.walked(dir); err != nil {
		return err
	}
	o, err := r.opened()
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	o.times = was.times + 1
	f.now = o
	return nil
}

// using runs a request on the open file, and again when the server forgot that it is
// open.
func (f *file) using(ctx context.Context, request func(opened) error) error {
	for try := 0; ; try++ {
		o := f.open()
		err := request(o)
		if err == nil || !forgotten(remote.StatusOf(err)) || try == 5 {
			return err
		}
		if err := f.reopen(ctx, o); err != nil {
			return err
		}
	}
}

// ReadAt implements remote.File.
func (f *file) ReadAt(ctx context.Context, off int64, n int) (b remote.Block, err error) {
	err = f.using(ctx, func(o opened) error {
		q := f.c.newCompound(0)
		q.putHandle(o.handle)
		q.read(o.id, off, n)
		q.getAttr()
		r, err := f.c.do(ctx, q)
		if err != nil {
			return err
		}
		if err = r.next(nfsv4.OP_PUTFH); err == nil {
			b, err = r.read()
		}
		if err != nil {
			r.Release()
			return err
		}
		b.Free = r.Release
		return nil
	})
	return b, err
}

// WriteAt implements remote.File.
func (f *file) WriteAt(ctx context.Context, off int64, n int, fill func([]byte) error) (wrote int, v remote.Verifier, err error) {
	err = f.using(ctx, func(o opened) error {
		q := f.c.newCompound(n)
		q.putHandle(o.handle)
		if err := fill(q.write(o.id, off, n)); err != nil {
			return err
		}
		r, err := f.c.do(ctx, q)
		if err != nil {
			return err
		}
		defer q.answered.Recycle()
		defer r.Release()
		if err := r.next(nfsv4.OP_PUTFH); err != nil {
			return err
		}
		if err := r.next(nfsv4.OP_WRITE); err != nil {
			return err
		}
		wrote = int(r.Uint32())
		r.Uint32() // whether it is durable: COMMIT makes it so in any case
		copy(v[:], r.Fixed(len(v)))
		if r.Err() == nil && (wrote <= 0 || wrote > n) {
			r.Fail(fmt.Errorf("of %d bytes it wrote %d", n, wrote))
		}
		return malformed(r.Err())
	})
	return wrote, v, err
}

// Commit implements remote.File.
func (f *file) Commit(ctx context.Context) (v remote.Verifier, err error) {
	err = f.using(ctx, func(o opened) error {
		q := f.c.newCompound(0)
		q.putHandle(o.handle)
		q.add(&nfsv4.NfsArgop4_OP_COMMIT{})
		r, err := f.c.do(ctx, q)
		if err != nil {
			return err
		}
		defer r.Release()
		if err := r.next(nfsv4.OP_PUTFH); err != nil {
			return err
		}
		if err := r.next(nfsv4.OP_COMMIT); err != nil {
			return err
		}
		copy(v[:], r.Fixed(len(v)))
		return malformed(r.Err())
	})
	return v, err
}

// Attr implements remote.File.
func (f *file) Attr(ctx context.Context) (remote.Attr, error) {
	q := f.c.newCompound(0)
	q.putHandle(f.open().handle)
	q.getAttr()
	r, err := f.c.do(ctx, q)
	if err != nil {
		return remote.Attr{}, err
	}
	defer r.Release()
	if err := r.next(nfsv4.OP_PUTFH); err != nil {
		return remote.Attr{}, err
	}
	return r.attr()
}

// Close implements remote.File. A file that the server forgot is closed.
func (f *file) Close(ctx context.Context) error {
	o := f.open()
	q := f.c.newCompound(0)
	q.putHandle(o.handle)
	q.close(o.id)
	r, err := f.c.do(ctx, q)
	if err != nil {
		return err
	}
	defer r.Release()
	if err = r.next(nfsv4.OP_PUTFH); err == nil {
		err = r.next(nfsv4.OP_CLOSE)
	}
	if s := remote.StatusOf(err); forgotten(s) || s == remote.Stale {
		return nil
	}
	return err
}

// closeLater closes a file that nobody was given.
func (f *file) closeLater() {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := f.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			f.c.cfg.Log.Debug("a file stays open at the server", "path", f.path, "error", err)
		}
	}()
}

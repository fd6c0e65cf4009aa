package nfs4

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"

	"github.com/stager-dev/stager/backends/nfs/internal/remote"
)

// using runs a request on the open file. If the server has lost the open state, it reopens the file
// and repeats the request.
func (f *file) using(ctx context.Context, request func(opened) error) error {
	for try := 0; ; try++ {
		o := f.open()
		err := request(o)
		why := remote.StatusOf(err)
		if !forgotten(why) || try == 5 {
			return err
		}
		if err := f.reopen(ctx, o, why); err != nil {
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
		f.c.data.Expect(q.Encoder, n)
		r, err := f.c.do(ctx, q)
		if err != nil {
			return err
		}
		if err = r.next(nfsv4.OP_PUTFH); err == nil {
			b, err = r.read(n, &f.c.data)
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
		defer q.replied.Recycle()
		defer r.Release()
		if err := r.next(nfsv4.OP_PUTFH); err != nil {
			return err
		}
		if err := r.next(nfsv4.OP_WRITE); err != nil {
			return err
		}
		wrote = int(r.Uint32())
		r.Uint32() // whether it is durable: COMMIT follows in any case
		copy(v[:], r.Fixed(len(v)))
		if r.Err() == nil && (wrote <= 0 || wrote > n) {
			r.Fail(fmt.Errorf("it wrote %[2]d of %[1]d bytes", n, wrote))
		}
		return remote.Malformed(r.Err())
	})
	return wrote, v, err
}

// Commit implements remote.File.
func (f *file) Commit(ctx context.Context) (v remote.Verifier, a remote.Attr, err error) {
	err = f.using(ctx, func(o opened) error {
		q := f.c.newCompound(0)
		q.putHandle(o.handle)
		q.add(&nfsv4.NfsArgop4_OP_COMMIT{})
		q.getAttr()
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
		a, err = r.attr()
		return err
	})
	return v, a, err
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

// Close implements remote.File. It ignores a file that the server has already closed.
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

// closeLater closes an unused file in the background.
func (f *file) closeLater() {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := f.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			f.c.cfg.Log.Debug("cannot close a file, it stays open at the server", "path", f.path, "error", err)
		}
	}()
}

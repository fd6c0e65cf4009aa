package nfs3

import (
	"context"
	"fmt"

	"github.com/stager-dev/stager/backends/nfs/internal/remote"
	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

// file is the handle of a file. Version 3 has no open files.
type file struct {
	c      *Client
	handle Handle
}

// Open implements remote.Tree.
func (c *Client) Open(ctx context.Context, path string, off int64, n int, once bool) (remote.File, remote.Block, error) {
	f := &file{c: c}
	var first remote.Block
	err := c.in(ctx, path, func(dir Handle, name string) error {
		h, a, err := c.lookup(ctx, dir, name)
		if err != nil {
			return err
		}
		switch a.Type {
		case remote.Regular:
		case remote.Symlink:
			return &remote.Error{Status: remote.SymlinkThere, Op: names[lookup]}
		default:
			return &remote.Error{Status: remote.IsDir, Op: names[lookup]}
		}
		f.handle = h
		first, err = f.ReadAt(ctx, off, n)
		return err
	})
	if err != nil {
		return nil, remote.Block{}, err
	}
	if once {
		return nil, first, nil
	}
	return f, first, nil
}

// Create implements remote.Tree. The name is unique, so repeating the request is harmless.
func (c *Client) Create(ctx context.Context, path string) (remote.File, error) {
	f := &file{c: c}
	err := c.in(ctx, path, func(dir Handle, name string) error {
		r, err := c.call(ctx, create, 0, func(e *rpc.Encoder) {
			where(e, dir, name)
			e.Uint32(0) // UNCHECKED
			mode(e, 0o644)
		})
		if err != nil {
			return err
		}
		defer r.Release()
		f.handle = maybeHandle(&r.Decoder)
		if err := remote.Malformed(r.Err()); err != nil || f.handle != "" {
			return err
		}
		f.handle, _, err = c.lookup(ctx, dir, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// ReadAt implements remote.File.
func (f *file) ReadAt(ctx context.Context, off int64, n int) (remote.Block, error) {
	r, err := f.c.call(ctx, read, 0, func(e *rpc.Encoder) {
		e.String(string(f.handle))
		e.Uint64(uint64(off))
		e.Uint32(uint32(n))
		f.c.data.Expect(e, n)
	})
	if err != nil {
		return remote.Block{}, err
	}
	b, known, err := decodeRead(&r.Decoder, n)
	if err == nil {
		f.c.data.Learn(r, len(b.Data))
	}
	if err == nil && !known {
		b.Attr, err = f.Attr(ctx)
	}
	if err != nil {
		r.Release()
		return remote.Block{}, err
	}
	b.Free = r.Release
	return b, nil
}

// decodeRead decodes the results of READ without copying. More data than requested is an error.
func decodeRead(d *rpc.Decoder, most int) (b remote.Block, known bool, err error) {
	b.Attr, known = maybeAttr(d)
	d.Uint32() // length, which is repeated below
	b.EOF = d.Uint32() != 0
	b.Data = d.Opaque(most)
	return b, known, remote.Malformed(d.Err())
}

// WriteAt implements remote.File.
func (f *file) WriteAt(ctx context.Context, off int64, n int, fill func([]byte) error) (wrote int, v remote.Verifier, err error) {
	r, err := f.c.call(ctx, write, n, func(e *rpc.Encoder) {
		e.String(string(f.handle))
		e.Uint64(uint64(off))
		e.Uint32(uint32(n))
		e.Uint32(0) // UNSTABLE: COMMIT makes it durable
		if err := fill(e.Reserve(n)); err != nil {
			e.Fail(err)
		}
	})
	if err != nil {
		return 0, v, err
	}
	defer r.Release()
	change(&r.Decoder)
	wrote = int(r.Uint32())
	r.Uint32()
	copy(v[:], r.Fixed(len(v)))
	if r.Err() == nil && (wrote <= 0 || wrote > n) {
		r.Fail(fmt.Errorf("it wrote %[2]d of %[1]d bytes", n, wrote))
	}
	return wrote, v, remote.Malformed(r.Err())
}

// Commit implements remote.File.
func (f *file) Commit(ctx context.Context) (v remote.Verifier, a remote.Attr, err error) {
	r, err := f.c.call(ctx, commit, 0, func(e *rpc.Encoder) {
		e.String(string(f.handle))
		e.Uint64(0) // the whole file
		e.Uint32(0)
	})
	if err != nil {
		return v, a, err
	}
	defer r.Release()
	a, known := change(&r.Decoder)
	copy(v[:], r.Fixed(len(v)))
	if err = remote.Malformed(r.Err()); err == nil && !known {
		a, err = f.Attr(ctx)
	}
	return v, a, err
}

// Attr implements remote.File.
func (f *file) Attr(ctx context.Context) (remote.Attr, error) { return f.c.attr(ctx, f.handle) }

// Close implements remote.File. Version 3 has no request for it.
func (f *file) Close(context.Context) error { return nil }

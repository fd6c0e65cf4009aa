package nfs3

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/stager-dev/stager/backends/nfs/internal/remote"
	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

// directory returns the handle of a directory, starting at its deepest cached parent. If guessed is
// true, a cached handle was used and may be outdated.
func (c *Client) directory(ctx context.Context, path string) (h Handle, guessed bool, err error) {
	if path == "" {
		return c.cfg.Root, false, nil
	}
	c.mu.Lock()
	k, ok := c.directories[path]
	c.mu.Unlock()
	if ok && time.Now().Before(k.until) {
		return k.handle, true, nil
	}
	up, name := split(path)
	dir, guessed, err := c.directory(ctx, up)
	if err != nil {
		return "", guessed, err
	}
	h, a, err := c.lookup(ctx, dir, name)
	if err != nil {
		return "", guessed, err
	}
	if a.Type == remote.Symlink {
		return "", guessed, &remote.Error{Status: remote.SymlinkThere, Op: names[lookup]}
	}
	if a.Type != remote.Directory {
		return "", guessed, &remote.Error{Status: remote.NotDir, Op: names[lookup]}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.directories) > 10_000 {
		clear(c.directories)
	}
	c.directories[path] = known{h, time.Now().Add(believe)}
	return h, guessed, nil
}

// forget removes a directory, its parents and its children from the cache.
func (c *Client) forget(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.directories {
		if strings.HasPrefix(p+"/", path+"/") || strings.HasPrefix(path+"/", p+"/") {
			delete(c.directories, p)
		}
	}
}

// within runs a request on a directory, and once more if the cached handle was outdated.
func (c *Client) within(ctx context.Context, dir string, request func(dir Handle) error) error {
	for try := 0; ; try++ {
		h, guessed, err := c.directory(ctx, dir)
		if err == nil {
			err = request(h)
		}
		switch remote.StatusOf(err) {
		case remote.Stale, remote.NoEnt, remote.NotDir, remote.BadHandle:
			c.forget(dir)
			if guessed && try == 0 {
				continue
			}
		}
		return err
	}
}

// in is within for a name in a directory.
func (c *Client) in(ctx context.Context, path string, request func(dir Handle, name string) error) error {
	dir, name := split(path)
	if name == "" {
		return &remote.Error{Status: remote.Inval, Op: names[lookup]}
	}
	return c.within(ctx, dir, func(h Handle) error { return request(h, name) })
}

// lookup returns the handle and attributes of a name.
func (c *Client) lookup(ctx context.Context, dir Handle, name string) (Handle, remote.Attr, error) {
	r, err := c.call(ctx, lookup, 0, func(e *rpc.Encoder) { where(e, dir, name) })
	if err != nil {
		return "", remote.Attr{}, err
	}
	defer r.Release()
	h := Handle(r.Opaque(maxHandle))
	a, ok := maybeAttr(&r.Decoder)
	if err := remote.Malformed(r.Err()); err != nil {
		return "", a, err
	}
	if !ok {
		a, err = c.attr(ctx, h)
	}
	return h, a, err
}

// where encodes a diropargs3.
func where(e *rpc.Encoder, dir Handle, name string) {
	e.String(string(dir))
	e.String(name)
}

func (c *Client) attr(ctx context.Context, h Handle) (remote.Attr, error) {
	r, err := c.call(ctx, getattr, 0, func(e *rpc.Encoder) { e.String(string(h)) })
	if err != nil {
		return remote.Attr{}, err
	}
	defer r.Release()
	a := attr(&r.Decoder)
	return a, remote.Malformed(r.Err())
}

// Stat implements remote.Tree.
func (c *Client) Stat(ctx context.Context, path string) (a remote.Attr, err error) {
	if path == "" {
		return c.attr(ctx, c.cfg.Root)
	}
	err = c.in(ctx, path, func(dir Handle, name string) error {
		_, a, err = c.lookup(ctx, dir, name)
		return err
	})
	return a, err
}

// maxPath is the maximum length of a link target.
const maxPath = 4 << 10

// ReadLink implements remote.Tree.
func (c *Client) ReadLink(ctx context.Context, path string) (target string, err error) {
	err = c.in(ctx, path, func(dir Handle, name string) error {
		h, _, err := c.lookup(ctx, dir, name)
		if err != nil {
			return err
		}
		r, err := c.call(ctx, readlink, 0, func(e *rpc.Encoder) { e.String(string(h)) })
		if err != nil {
			return err
		}
		defer r.Release()
		maybeAttr(&r.Decoder)
		target = string(r.Opaque(maxPath))
		return remote.Malformed(r.Err())
	})
	return target, err
}

// listBytes is the size of one page of a directory.
const listBytes = 256 << 10

// ReadDir implements remote.Tree.
func (c *Client) ReadDir(ctx context.Context, path string, each func(remote.Entry) error) error {
	begun := false
	return c.within(ctx, path, func(dir Handle) error {
		if begun {
			return &remote.Error{Status: remote.Stale, Op: names[readdirplus]}
		}
		return c.list(ctx, dir, func(e remote.Entry) error {
			begun = true
			return each(e)
		})
	})
}

// list lists a directory by READDIRPLUS. If the server lacks that, it uses READDIR and a LOOKUP per
// name.
func (c *Client) list(ctx context.Context, dir Handle, each func(remote.Entry) error) error {
	var (
		cookie   uint64
		verifier [8]byte
		pages    remote.Pages
	)
	for {
		by := readdirplus
		if c.bare.Load() {
			by = readdir
		}
		r, err := c.call(ctx, by, 0, func(e *rpc.Encoder) {
			e.String(string(dir))
			e.Uint64(cookie)
			_, _ = e.Write(verifier[:])
			most := uint32(min(listBytes, c.read))
			e.Uint32(most)
			if by == readdirplus {
				e.Uint32(most)
			}
		})
		if by == readdirplus && cookie == 0 && lacks(err) {
			c.bare.Store(true)
			continue
		}
		if err != nil {
			return err
		}
		done, err := decodeEntries(&r.Decoder, by == readdirplus, &verifier, &cookie, func(e remote.Entry, known bool) error {
			if e.Name == "." || e.Name == ".." {
				return nil
			}
			if !known {
				_, e.Attr, err = c.lookup(ctx, dir, e.Name)
				if e.Gone = remote.StatusOf(err) == remote.NoEnt; !e.Gone && err != nil {
					return err
				}
			}
			return each(e)
		})
		r.Release()
		if err != nil || done {
			return err
		}
		if err := pages.Next(cookie); err != nil {
			return err
		}
	}
}

// lacks reports whether an error says that the server lacks a procedure.
func lacks(err error) bool {
	var refused *rpc.RefusedError
	return remote.StatusOf(err) == remote.NotSupp || errors.As(err, &refused) && refused.Stat == procedureUnavailable
}

// procedureUnavailable is PROC_UNAVAIL of RFC 5531.
const procedureUnavailable = 3

// decodeEntries decodes the results of READDIRPLUS, or of READDIR if plus is false. Servers may
// omit attributes. Names may be any bytes, so it does not use generated code, which requires ASCII.
func decodeEntries(d *rpc.Decoder, plus bool, verifier *[8]byte, cookie *uint64, each func(e remote.Entry, known bool) error) (done bool, err error) {
	maybeAttr(d)
	copy(verifier[:], d.Fixed(8))
	for d.Uint32() != 0 {
		d.Uint64() // fileid, which is also in the attributes
		name := string(d.Opaque(4 << 10))
		*cookie = d.Uint64()
		var (
			a     remote.Attr
			known bool
		)
		if plus {
			a, known = maybeAttr(d)
			maybeHandle(d)
		}
		if d.Err() != nil {
			return false, remote.Malformed(d.Err())
		}
		if err := each(remote.Entry{Name: name, Attr: a}, known); err != nil {
			return false, err
		}
	}
	done = d.Uint32() != 0
	return done, remote.Malformed(d.Err())
}

// mode encodes a sattr3 that sets only the mode.
func mode(e *rpc.Encoder, bits uint32) {
	e.Uint32(1)
	e.Uint32(bits)
	for range 5 { // uid, gid, size, times
		e.Uint32(0)
	}
}

// Mkdir implements remote.Tree.
func (c *Client) Mkdir(ctx context.Context, path string) error {
	return c.in(ctx, path, func(dir Handle, name string) error {
		r, err := c.call(ctx, mkdir, 0, func(e *rpc.Encoder) {
			where(e, dir, name)
			mode(e, 0o755)
		})
		if err == nil {
			r.Release()
		}
		return err
	})
}

// Remove implements remote.Tree. It checks the type just before, in another request.
func (c *Client) Remove(ctx context.Context, path string, t remote.Type) error {
	p := remove
	if t == remote.Directory {
		p = rmdir
		defer c.forget(path)
	}
	return c.in(ctx, path, func(dir Handle, name string) error {
		_, a, err := c.lookup(ctx, dir, name)
		if err != nil {
			return err
		}
		if a.Type != t {
			return remote.ErrType
		}
		r, err := c.call(ctx, p, 0, func(e *rpc.Encoder) { where(e, dir, name) })
		if err == nil {
			r.Release()
		}
		return err
	})
}

// Rename implements remote.Tree.
func (c *Client) Rename(ctx context.Context, f remote.File, from, to string) (remote.Attr, error) {
	_, old := split(from)
	err := c.in(ctx, to, func(dir Handle, name string) error {
		r, err := c.call(ctx, rename, 0, func(e *rpc.Encoder) {
			where(e, dir, old)
			where(e, dir, name)
		})
		if err == nil {
			r.Release()
		}
		return err
	})
	if err != nil {
		return remote.Attr{}, err
	}
	attr, err := f.Attr(ctx)
	return attr, remote.Replaced(err)
}

// Link implements remote.Tree.
func (c *Client) Link(ctx context.Context, f remote.File, from, to string) (remote.Attr, error) {
	own := f.(*file).handle
	err := c.in(ctx, to, func(dir Handle, name string) error {
		r, err := c.call(ctx, link, 0, func(e *rpc.Encoder) {
			e.String(string(own))
			where(e, dir, name)
		})
		if err == nil {
			r.Release()
		}
		return err
	})
	if err != nil {
		return remote.Attr{}, err
	}
	if err := c.Remove(ctx, from, remote.Regular); err != nil && remote.StatusOf(err) != remote.NoEnt {
		return remote.Attr{}, err
	}
	attr, err := f.Attr(ctx)
	return attr, remote.Replaced(err)
}

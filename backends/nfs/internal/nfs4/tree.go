package nfs4

import (
	"context"
	"encoding/binary"
	"strings"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"

	"github.com/stager-dev/stager/backends/nfs/internal/remote"
	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

// place is the start of a path walk and the names to look up from there.
type place struct {
	handle handle // nil: the root
	rest   []string
}

// otherOps is the number of operations of a compound beside those of its walk.
const otherOps = 12

func split(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

// reach shortens a path walk until it fits into a compound, by looking up a prefix first.
func (c *Client) reach(ctx context.Context, names []string) (place, error) {
	at := place{rest: names}
	s, err := c.session(ctx, nil)
	if err != nil {
		return at, err
	}
	for most := s.maxOps - otherOps; len(at.rest) > most; {
		step := place{at.handle, at.rest[:most]}
		q := c.newCompound(0)
		q.walk(step)
		q.op(nfsv4.OP_GETFH)
		r, err := c.do(ctx, q)
		if err != nil {
			return at, err
		}
		if err = r.walked(step); err == nil {
			at.handle, err = r.handle()
		}
		r.Release()
		if err != nil {
			return at, err
		}
		at.rest = at.rest[most:]
	}
	return at, nil
}

// parent returns the place of the parent directory and the last name.
func (c *Client) parent(ctx context.Context, path string) (place, string, error) {
	names := split(path)
	if len(names) == 0 {
		return place{}, "", &remote.Error{Status: remote.Inval, Op: "LOOKUP"}
	}
	dir, err := c.reach(ctx, names[:len(names)-1])
	return dir, names[len(names)-1], err
}

// Stat implements remote.Tree.
func (c *Client) Stat(ctx context.Context, path string) (remote.Attr, error) {
	at, err := c.reach(ctx, split(path))
	if err != nil {
		return remote.Attr{}, err
	}
	q := c.newCompound(0)
	q.walk(at)
	q.getAttr()
	r, err := c.do(ctx, q)
	if err != nil {
		return remote.Attr{}, err
	}
	defer r.Release()
	if err := r.walked(at); err != nil {
		return remote.Attr{}, err
	}
	return r.attr()
}

// maxPath is the maximum length of a link target.
const maxPath = 4 << 10

// ReadLink implements remote.Tree.
func (c *Client) ReadLink(ctx context.Context, path string) (target string, err error) {
	err = c.ask(ctx, path, nfsv4.OP_READLINK, func(q *compound) {}, func(r *results) { target = string(r.Opaque(maxPath)) })
	return target, err
}

// MayAdd reports whether this user may create files in a directory. Nobody may in the directories
// above the exports.
func (c *Client) MayAdd(ctx context.Context, path string) (may bool, err error) {
	const want = nfsv4.ACCESS4_EXTEND | nfsv4.ACCESS4_MODIFY
	err = c.ask(ctx, path, nfsv4.OP_ACCESS, func(q *compound) { q.Uint32(want) }, func(r *results) {
		r.Uint32() // rights that the server can check
		may = r.Uint32()&want == want
	})
	return may, err
}

// ask sends one operation on a path and reads its results.
func (c *Client) ask(ctx context.Context, path string, op nfsv4.NfsOpnum4, args func(*compound), read func(*results)) error {
	at, err := c.reach(ctx, split(path))
	if err != nil {
		return err
	}
	q := c.newCompound(0)
	q.walk(at)
	q.op(op)
	args(q)
	r, err := c.do(ctx, q)
	if err != nil {
		return err
	}
	defer r.Release()
	if err := r.walked(at); err != nil {
		return err
	}
	if err := r.next(op); err != nil {
		return err
	}
	read(r)
	return remote.Malformed(r.Err())
}

// listBytes is the size of one page of a directory.
const listBytes = 256 << 10

// ReadDir implements remote.Tree.
func (c *Client) ReadDir(ctx context.Context, path string, each func(remote.Entry) error) error {
	at, err := c.reach(ctx, split(path))
	if err != nil {
		return err
	}
	var (
		cookie   uint64
		verifier [8]byte
		pages    remote.Pages
	)
	for {
		q := c.newCompound(0)
		q.walk(at)
		q.op(nfsv4.OP_GETFH)
		q.op(nfsv4.OP_READDIR)
		q.Uint64(cookie)
		_, _ = q.Write(verifier[:])
		read, _ := c.Sizes()
		most := uint32(min(listBytes, read))
		q.Uint32(most)
		q.Uint32(most)
		q.bitmap(attributes...)
		r, err := c.do(ctx, q)
		if err != nil {
			return err
		}
		done, err := func() (bool, error) {
			defer r.Release()
			if err := r.walked(at); err != nil {
				return false, err
			}
			h, err := r.handle()
			if err != nil {
				return false, err
			}
			at = place{handle: h} // the rest of this directory, even if it is renamed
			if err := r.next(nfsv4.OP_READDIR); err != nil {
				return false, err
			}
			return decodeEntries(&r.Decoder, &verifier, &cookie, each)
		}()
		if err != nil || done {
			return err
		}
		if err := pages.Next(cookie); err != nil {
			return err
		}
	}
}

// decodeEntries decodes the results of READDIR. Names may be any bytes and directories may be long,
// so it does not use generated code.
func decodeEntries(d *rpc.Decoder, verifier *[8]byte, cookie *uint64, each func(remote.Entry) error) (done bool, err error) {
	copy(verifier[:], d.Fixed(8))
	for d.Uint32() != 0 {
		*cookie = d.Uint64()
		name := string(d.Opaque(4 << 10))
		attr, err := decodeAttr(d)
		s := remote.StatusOf(err)
		gone := s == remote.NoEnt || s == remote.Stale
		if err != nil && !gone {
			return false, err
		}
		if err := each(remote.Entry{Name: name, Attr: attr, Gone: gone}); err != nil {
			return false, err
		}
	}
	done = d.Uint32() != 0
	return done, remote.Malformed(d.Err())
}

// mode returns the attributes of a new file or directory. The server applies its own mask.
func mode(bits uint32) nfsv4.Fattr4 {
	return nfsv4.Fattr4{
		Attrmask: []uint32{0, 1 << (nfsv4.FATTR4_MODE - 32)},
		AttrVals: binary.BigEndian.AppendUint32(nil, bits),
	}
}

// Mkdir implements remote.Tree.
func (c *Client) Mkdir(ctx context.Context, path string) error {
	dir, name, err := c.parent(ctx, path)
	if err != nil {
		return err
	}
	q := c.newCompound(0)
	q.keep = true
	q.walk(dir)
	q.add(&nfsv4.NfsArgop4_OP_CREATE{Opcreate: nfsv4.Create4args{
		Objtype: &nfsv4.Createtype4_NF4DIR{}, Objname: name, Createattrs: mode(0o755),
	}})
	r, err := c.do(ctx, q)
	if err != nil {
		return err
	}
	defer r.Release()
	if err := r.walked(dir); err != nil {
		return err
	}
	return r.next(nfsv4.OP_CREATE)
}

// Remove implements remote.Tree. It checks the type within the same request.
func (c *Client) Remove(ctx context.Context, path string, t remote.Type) error {
	dir, name, err := c.parent(ctx, path)
	if err != nil {
		return err
	}
	q := c.newCompound(0)
	q.keep = true
	q.walk(dir)
	q.op(nfsv4.OP_SAVEFH)
	q.lookup(name)
	q.add(&nfsv4.NfsArgop4_OP_VERIFY{Opverify: nfsv4.Verify4args{ObjAttributes: nfsv4.Fattr4{
		Attrmask: []uint32{1 << nfsv4.FATTR4_TYPE}, AttrVals: binary.BigEndian.AppendUint32(nil, uint32(t)),
	}}})
	q.op(nfsv4.OP_RESTOREFH)
	q.remove(name)
	r, err := c.do(ctx, q)
	if err != nil {
		return err
	}
	defer r.Release()
	if err := r.walked(dir); err != nil {
		return err
	}
	for _, op := range []nfsv4.NfsOpnum4{nfsv4.OP_SAVEFH, nfsv4.OP_LOOKUP, nfsv4.OP_VERIFY, nfsv4.OP_RESTOREFH, nfsv4.OP_REMOVE} {
		if err = r.next(op); err != nil {
			break
		}
	}
	if remote.StatusOf(err) == remote.NotSame {
		return remote.ErrType
	}
	return err
}

func (q *compound) remove(name string) {
	q.op(nfsv4.OP_REMOVE)
	q.String(name)
}

// Rename implements remote.Tree.
func (c *Client) Rename(ctx context.Context, f remote.File, from, to string) (remote.Attr, error) {
	own := f.(*file).open().handle
	return c.publish(ctx, from, to, own, func(q *compound, dir place, old, name string) {
		q.walk(dir)
		q.op(nfsv4.OP_SAVEFH)
		q.op(nfsv4.OP_RENAME)
		q.String(old)
		q.String(name)
	}, func(r *results, dir place) error {
		if err := r.walked(dir); err != nil {
			return err
		}
		if err := r.next(nfsv4.OP_SAVEFH); err != nil {
			return err
		}
		err := r.next(nfsv4.OP_RENAME)
		r.Fixed(2 * changeInfo)
		return err
	})
}

// changeInfo is the encoded length of a change_info4.
const changeInfo = 4 + 8 + 8

// Link implements remote.Tree.
func (c *Client) Link(ctx context.Context, f remote.File, from, to string) (remote.Attr, error) {
	own := f.(*file).open().handle
	return c.publish(ctx, from, to, own, func(q *compound, dir place, old, name string) {
		q.putHandle(own)
		q.op(nfsv4.OP_SAVEFH)
		q.walk(dir)
		q.op(nfsv4.OP_LINK)
		q.String(name)
		q.remove(old)
	}, func(r *results, dir place) error {
		for _, op := range []nfsv4.NfsOpnum4{nfsv4.OP_PUTFH, nfsv4.OP_SAVEFH} {
			if err := r.next(op); err != nil {
				return err
			}
		}
		if err := r.walked(dir); err != nil {
			return err
		}
		for _, op := range []nfsv4.NfsOpnum4{nfsv4.OP_LINK, nfsv4.OP_REMOVE} {
			if err := r.next(op); err != nil {
				return err
			}
			r.Fixed(changeInfo)
		}
		return nil
	})
}

// publish gives a file another name within its directory and returns its attributes.
func (c *Client) publish(ctx context.Context, from, to string, own handle,
	ask func(q *compound, dir place, old, name string), answered func(r *results, dir place) error,
) (remote.Attr, error) {
	dir, old, err := c.parent(ctx, from)
	if err != nil {
		return remote.Attr{}, err
	}
	names := split(to)
	q := c.newCompound(0)
	q.keep = true
	ask(q, dir, old, names[len(names)-1])
	q.putHandle(own)
	q.getAttr()
	r, err := c.do(ctx, q)
	if err != nil {
		return remote.Attr{}, err
	}
	defer r.Release()
	if err := answered(r, dir); err != nil {
		return remote.Attr{}, err
	}
	if err := r.next(nfsv4.OP_PUTFH); err != nil {
		return remote.Attr{}, remote.Replaced(err)
	}
	attr, err := r.attr()
	return attr, remote.Replaced(err)
}

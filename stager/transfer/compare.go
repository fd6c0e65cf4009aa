package transfer

import (
	"bytes"
	"context"
	"iter"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/layout"
)

// state is the state of an object at the destination.
type state string

const (
	absent  state = "absent"
	there   state = "there"   // certain
	differs state = "differs" // certain
	unsure  state = "unsure"  // the sizes agree, but nothing else is known
)

// pair is an object of the source and the object with its key at the destination.
type pair struct {
	src, dst backends.Object // dst is zero if absent
	state    state
}

// pairs walks both listings side by side.
func (r *run) pairs(ctx context.Context) iter.Seq2[pair, error] {
	if r.Object != nil {
		return r.single(ctx)
	}
	return func(yield func(pair, error) bool) {
		r.listed = layout.Digest{}
		objects := r.Listing
		if r.shared() != nil {
			objects.Chosen = r.listed.Add
		}
		next, stop := iter.Pull2(listing(ctx, r.Dst, ""))
		defer stop()
		at, err, more := next()
		for obj, failed := range objects.Objects(ctx, r.Src) {
			if failed != nil {
				yield(pair{}, failed)
				return
			}
			for more && err == nil && at.Key < obj.Key {
				at, err, more = next()
			}
			if err != nil {
				yield(pair{}, err)
				return
			}
			p := pair{src: obj, state: absent}
			if more && at.Key == obj.Key {
				p.dst = at
				p.state = r.judge(obj, at)
			}
			if !yield(p, nil) {
				return
			}
		}
	}
}

// listing lists a destination, which may not exist yet.
func listing(ctx context.Context, dst *backends.Store, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		for obj, err := range dst.List(ctx, prefix) {
			if err != nil && backends.KindOf(err) == backends.NotExist || !yield(obj, err) {
				return
			}
		}
	}
}

// single is pairs for one object.
func (r *run) single(ctx context.Context) iter.Seq2[pair, error] {
	return func(yield func(pair, error) bool) {
		p := pair{src: *r.Object, state: absent}
		now, err := r.Dst.Stat(ctx, p.src.Key)
		switch {
		case err == nil:
			p.dst = now
			p.state = r.judge(p.src, now)
		case backends.KindOf(err) == backends.NotExist:
			err = nil
		}
		yield(p, err)
	}
}

// judge returns the state as far as it is known without further requests.
func (r *run) judge(src, dst backends.Object) state {
	switch {
	case r.Force, src.Size != dst.Size:
		return differs
	case r.record.has(src, dst):
		return there
	case src.Sum.IsZero() || src.Sum.Algorithm != dst.Sum.Algorithm:
		return unsure
	case src.Sum != dst.Sum:
		return differs
	}
	return there
}

// sums requests the checksums of both sides, and reports whether they can be compared and are
// equal.
func (r *run) sums(ctx context.Context, src, dst backends.Object) (comparable, equal bool, err error) {
	if r.Src.Capabilities().Checksum == "" || r.Dst.Capabilities().Checksum == "" {
		return false, false, nil
	}
	a, err := r.Src.Stat(ctx, src.Key)
	if err != nil {
		return false, false, err
	}
	b, err := r.Dst.Stat(ctx, dst.Key)
	if err != nil {
		return false, false, err
	}
	comparable = !a.Sum.IsZero() && a.Sum.Algorithm == b.Sum.Algorithm && a.Version == src.Version && b.Version == dst.Version
	return comparable, comparable && a.Sum == b.Sum, nil
}

// same compares two objects of one size, by reading them if necessary.
func (r *run) same(ctx context.Context, src, dst backends.Object) (bool, error) {
	if comparable, equal, err := r.sums(ctx, src, dst); comparable || err != nil {
		return equal, err
	}
	return r.sameBytes(ctx, src, dst)
}

// sameBytes reads two objects of one size and compares them.
func (r *run) sameBytes(ctx context.Context, src, dst backends.Object) (bool, error) {
	length := min(int64(shortBlock), max(src.Size, 1))
	if err := r.room.Acquire(ctx, 2*bufferSize(length)); err != nil {
		return false, &backends.Error{Op: "read", Store: r.summary.Source, Key: src.Key, Kind: backends.Canceled, Err: err}
	}
	defer r.room.Release(2 * bufferSize(length))
	both := borrow(2, length)
	defer giveBack(both)
	for off := int64(0); off < src.Size; off += length {
		n := min(length, src.Size-off)
		g, gctx := errgroup.WithContext(ctx)
		g.Go(func() error {
			_, err := r.Src.ReadRange(gctx, src, off, n, backends.Stretch{Bytes: both[0][:n], Off: off}, nil)
			return err
		})
		g.Go(func() error {
			_, err := r.Dst.ReadRange(gctx, dst, off, n, backends.Stretch{Bytes: both[1][:n], Off: off}, nil)
			return err
		})
		if err := g.Wait(); err != nil {
			return false, err
		}
		if !bytes.Equal(both[0][:n], both[1][:n]) {
			return false, nil
		}
	}
	return true, nil
}

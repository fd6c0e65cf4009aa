package transfer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/stager-dev/stager/backends"
)

// send copies one object. With absent it must not exist at the destination.
func (r *run) send(ctx context.Context, obj backends.Object, absent bool) error {
	for try := 1; ; try++ {
		err := r.try(ctx, obj, absent)
		if absent && backends.KindOf(err) == backends.Exist {
			return r.met(ctx, obj)
		}
		if !errors.Is(err, errSums) || try == corruptTries {
			return err
		}
		r.Log.Warn("wrong bytes, copying them again", "error", err)
	}
}

// try copies the object once.
func (r *run) try(ctx context.Context, obj backends.Object, absent bool) (err error) {
	capabilities := r.Dst.Capabilities()
	length := max(obj.Size, 1)
	if length > maxBlock {
		if length = capabilities.PartLength(obj.Size); bufferSize(length) > min(maxBlock, r.Buffers) {
			length = shortBlock
		}
	}
	if obj, err = r.known(ctx, obj, length); err != nil {
		return err
	}
	// Send as many parts concurrently as memory allows, but one after the other if the source's
	// checksum needs the bytes in order.
	blocks := blocksOf(obj.Size, length)
	streams := max(min(blocks, int64(r.Dst.Workers()), r.Buffers/bufferSize(length)), 1)
	if reported := obj.Sum.Algorithm; blocks > 1 && reported.New() != nil && !reported.Combinable() {
		streams = 1
	}
	dst := r.Dst
	if blocks > 1 {
		dst = dst.Narrow(int(streams))
	}
	if err := r.room.Acquire(ctx, streams*bufferSize(length)); err != nil {
		return &backends.Error{Op: "copy", Store: r.summary.Source, Key: obj.Key, Kind: backends.Canceled, Err: err}
	}
	defer r.room.Release(streams * bufferSize(length))
	c := newBlockCache(ctx, r.Src, obj, length, borrow(streams, length), []backends.Algorithm{obj.Sum.Algorithm, capabilities.Checksum})
	defer c.close()
	var came atomic.Int64
	c.moved = func(n int64) { came.Add(n); r.moved(n) }
	written, err := dst.Put(ctx, obj.Key, c, obj.Size, backends.CreateOptions{IfAbsent: absent})
	if err == nil {
		var how string
		if how, err = r.accept(ctx, c, &written); err == nil {
			r.note(ctx, obj, written)
			r.count(obj, false, how)
			return nil
		}
	}
	r.moved(-came.Load())
	return err
}

// known returns the object with the checksum that the source reports. For a small object the
// checksum arrives with its bytes.
func (r *run) known(ctx context.Context, obj backends.Object, length int64) (backends.Object, error) {
	if obj.Size <= length || !obj.Sum.IsZero() || r.Src.Capabilities().Checksum == "" {
		return obj, nil
	}
	now, err := r.Src.Stat(ctx, obj.Key)
	if err != nil {
		return obj, err
	}
	if now.Size != obj.Size || obj.Version != "" && now.Version != obj.Version {
		return obj, &backends.Error{
			Op: "read", Store: r.summary.Source, Key: obj.Key, Kind: backends.Changed,
			Err: fmt.Errorf("it was replaced after it was listed (version %q, now %q)", obj.Version, now.Version),
		}
	}
	obj.Sum = now.Sum
	return obj, nil
}

// accept compares the checksum at the destination with what was sent, and returns which checksums
// matched. It removes a wrong object.
func (r *run) accept(ctx context.Context, c *blockCache, written *backends.Object) (how string, err error) {
	key := c.obj.Key
	if written.Sum.IsZero() && r.Dst.Capabilities().Checksum != "" || written.Version == "" {
		if *written, err = r.Dst.Stat(ctx, key); err != nil {
			return "", err
		}
	}
	want, known := c.sum(written.Sum.Algorithm)
	if written.Size != c.obj.Size || known && want != written.Sum {
		err := &backends.Error{Op: "write", Store: r.summary.Destination, Key: key, Kind: backends.Corrupt, Err: fmt.Errorf(
			"%w: the destination has %d bytes with %s, but %d bytes with %s were sent", errSums, written.Size, written.Sum, c.obj.Size, want)}
		if now, failed := r.Dst.Stat(ctx, key); failed == nil && now.Version == written.Version {
			failed = r.Dst.Delete(ctx, key)
			if failed != nil {
				r.Log.Warn("cannot remove an object with wrong bytes", "key", key, "error", failed)
			}
		}
		return "", err
	}
	reported := c.sourceSum()
	_, checked := c.sum(reported.Algorithm)
	switch {
	case checked && known && reported.Algorithm == written.Sum.Algorithm:
		return string(reported.Algorithm), nil
	case checked && known:
		return fmt.Sprintf("%s and %s", reported.Algorithm, written.Sum.Algorithm), nil
	case checked:
		return string(reported.Algorithm), nil
	case known:
		return string(written.Sum.Algorithm), nil
	}
	return "size", nil
}

// met handles an object that appeared at the destination meanwhile: another stager wrote it, or the
// response to our own request was lost.
func (r *run) met(ctx context.Context, obj backends.Object) error {
	now, err := r.Dst.Stat(ctx, obj.Key)
	if err != nil {
		return err
	}
	equal := now.Size == obj.Size
	if equal {
		if equal, err = r.same(ctx, obj, now); err != nil {
			return err
		}
	}
	if !equal {
		return r.inTheWay(obj.Key)
	}
	r.note(ctx, obj, now)
	r.moved(obj.Size)
	r.count(obj, true, "")
	return nil
}

package download

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/window/disk"
)

// corruptTries is how often an object with a wrong checksum is fetched: networks and caches corrupt
// bytes now and then, stores hardly ever.
const corruptTries = 3

// file is an object under way.
type file struct {
	*transfer
	place  int          // index in the spool
	left   atomic.Int64 // pieces that have not ended
	failed atomic.Bool  // a piece failed
}

// fetchAll fetches the objects of the spool, in its order:
//
//	spool ─ feed ─┬─ small, or a piece ─ barrier ─ rename, record
//	              ├─ …
//	              └─ as many concurrently as suits the store
//
// The barrier is that of listingOverlap. It is open once the listing has ended.
//
// No worker waits for the end of a large file: the worker that fetches its last piece verifies and
// publishes it, while the others continue with the next object.
func (p *run) fetchAll(ctx context.Context) error {
	pool, ctx := backends.NewWorkerPool(ctx, p.streams)
	if err := p.feed(ctx, pool); err != nil {
		pool.Fail(err)
	}
	return pool.Wait()
}

// feed hands out the work.
func (p *run) feed(ctx context.Context, pool *backends.WorkerPool) error {
	next := 0
	for item, err := range p.todo.all() {
		if err != nil {
			return local("the list of objects", err)
		}
		obj := item.Object
		memory := p.unpackNeeds(obj)
		if memory > 0 || item.check {
			p.head.await(ctx)
		} else {
			p.head.enter(ctx, obj)
		}
		if ctx.Err() != nil || p.unpacks.Acquire(ctx, memory) != nil {
			return p.canceled(ctx)
		}
		if memory > 0 {
			pool.Go(func() error {
				defer p.unpacks.Release(memory)
				return explain(p.unpack(ctx, obj))
			})
			continue
		}
		if item.check {
			pool.Go(func() error { return explain(p.check(ctx, obj)) })
			continue
		}
		place := next
		next++
		if obj.Size <= oneStream {
			pool.Go(func() error { return explain(p.small(ctx, obj, place)) })
			continue
		}
		incoming, err := p.open(obj)
		if err != nil {
			return err
		}
		f := &file{transfer: incoming, place: place}
		n := max(len(f.pieces), 1)
		f.left.Store(int64(n))
		for i := range n {
			if ctx.Err() != nil {
				f.failed.Store(true)
				if f.left.Add(int64(i-n)) == 0 {
					p.leave(incoming)
				}
				return p.canceled(ctx)
			}
			pool.Go(func() error { return explain(p.piece(ctx, f, i)) })
		}
	}
	return nil
}

// piece fetches one piece of a large file. There may be none, if the whole file is on disk and only
// has to be verified.
func (p *run) piece(ctx context.Context, f *file, i int) (err error) {
	if i < len(f.pieces) {
		err = f.fetch(ctx, i)
	}
	if err != nil {
		f.failed.Store(true)
	}
	if f.left.Add(-1) > 0 {
		return err
	}
	if f.failed.Load() {
		p.leave(f.transfer)
		return err
	}
	return p.finish(ctx, f.transfer, f.place)
}

// canceled returns the error for a run that is canceled.
func (p *run) canceled(ctx context.Context) error {
	return &backends.Error{Op: "read", Store: p.summary.Source, Kind: backends.Canceled, Err: context.Cause(ctx)}
}

// small fetches an object in one request.
func (p *run) small(ctx context.Context, obj backends.Object, place int) error {
	if ctx.Err() != nil {
		return p.canceled(ctx) // before it leaves an empty file
	}
	t, err := p.open(obj)
	if err != nil {
		return err
	}
	for i := range t.pieces {
		if err := t.fetch(ctx, i); err != nil {
			p.leave(t)
			return err
		}
	}
	return p.finish(ctx, t, place)
}

// open creates the incoming file, or resumes that of an earlier run.
func (p *run) open(obj backends.Object) (*transfer, error) {
	// The same key may have other bytes in another store.
	version := p.summary.Source + " " + string(obj.Version) + " " + strconv.FormatInt(obj.ModTime.UnixNano(), 10)
	space, head := spaceOf(obj.Size), (*listingOverlap)(nil)
	if !p.dir.Reserves(obj.Size) && !p.head.isOpen() {
		space, head = 0, p.head
	}
	var in *disk.Incoming
	if err := p.head.acquire(space, func() (err error) {
		in, err = p.dir.Incoming(obj.Key, obj.Size, version)
		return err
	}); err != nil {
		return nil, local(obj.Key, err)
	}
	if in.Resumed() {
		have := obj.Size - missing(in)
		p.meter.bytes.Add(have)
		p.mu.Lock()
		p.summary.ResumedBytes += have
		p.mu.Unlock()
		p.log.Info("resuming file", "path", obj.Key, "bytes", have, "of", obj.Size)
	}
	t := newTransfer(p.cfg.Store, obj, in, Options{Verify: p.cfg.Verify, Streams: p.cfg.Parallel, Arrived: p.meter.arrived})
	t.head = head
	return t, nil
}

func missing(in *disk.Incoming) (n int64) {
	for _, r := range in.Missing() {
		n += r.Len
	}
	return n
}

// leave closes a file so that the next run can resume it.
func (p *run) leave(t *transfer) {
	if err := t.in.Close(); err != nil {
		p.log.Warn("cannot keep a partial file for resuming", "path", t.obj.Key, "error", err)
	}
}

// finish verifies the file and publishes it.
func (p *run) finish(ctx context.Context, t *transfer, place int) error {
	sum, err := t.verify(ctx)
	for try := 1; errors.Is(err, errSums) && try < corruptTries; try++ {
		p.log.Warn("wrong bytes, fetching them again", "error", err)
		p.drop(t)
		if t, err = p.open(t.obj); err != nil {
			return err
		}
		sum, err = Object(ctx, t.store, t.obj, t.in, t.opts)
	}
	if err != nil {
		if isKind(err, backends.Corrupt) {
			p.drop(t)
		} else {
			p.leave(t)
		}
		return err
	}
	return p.publish(t, place, verifiedBy(sum))
}

// verifiedBy returns how an object was verified.
func verifiedBy(sum backends.Checksum) string {
	if sum.IsZero() {
		return "size"
	}
	return string(sum.Algorithm)
}

// publish renames the file into place and records it. Until the listing has ended, the file waits
// at the barrier instead.
func (p *run) publish(t *transfer, place int, how string) (err error) {
	const mode = 0o644
	var now disk.State
	if p.head.isOpen() {
		now, err = t.in.PublishNew(t.obj.Key, mode, p.mtime(t.obj), p.replaceable(t.obj))
	} else {
		w := sealed{how: how}
		if w.ino, err = t.in.Seal(mode, p.mtime(t.obj)); err == nil {
			if p.head.wait(place, w) {
				return nil
			}
			now, err = p.dir.PublishSealed(t.obj.Key, t.obj.Key, t.obj.Size, w.ino, p.replaceable(t.obj))
		}
	}
	if err != nil {
		p.leave(t)
		return p.unpublished(t.obj.Key, err)
	}
	return p.note(t.obj, how, now)
}

// replaceable returns whether an object may replace an existing file: one that an earlier run
// wrote, or any file if allowed.
func (p *run) replaceable(obj backends.Object) disk.Replacer {
	return func(now disk.State) bool {
		return p.cfg.Overwrite || now.Mode.IsRegular() && p.record.judge(obj, now) == ours
	}
}

// unpublished returns the error for a file that could not be renamed into place.
func (p *run) unpublished(key string, err error) error {
	if !errors.Is(err, fs.ErrExist) {
		return local(key, err)
	}
	return p.inTheWay(key, "it appeared while the object was fetched, and stager did not write it")
}

// inTheWay returns the error for a file that is not replaced.
func (p *run) inTheWay(key, why string) error {
	return &backends.Error{Op: "write", Store: p.cfg.Dir, Key: key, Kind: backends.Exist, Err: fmt.Errorf(
		"the file %q is in the way: %s; move it away, or replace it with --overwrite", key, why)}
}

// mtime returns the modification time for an object's file.
func (p *run) mtime(obj backends.Object) time.Time {
	if obj.ModTime.IsZero() {
		return p.start
	}
	return obj.ModTime
}

// note records a published file.
func (p *run) note(obj backends.Object, how string, now disk.State) error {
	if err := p.record.add(obj, p.mtime(obj), now); err != nil {
		return local("the record of this run in "+disk.Private, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetchedLocked(obj, how)
	return nil
}

// fetchedLocked counts a fetched object.
func (p *run) fetchedLocked(obj backends.Object, how string) {
	p.meter.files.Add(1)
	s := &p.summary
	s.Files, s.FetchedFiles = s.Files+1, s.FetchedFiles+1
	s.Bytes, s.FetchedBytes = s.Bytes+obj.Size, s.FetchedBytes+obj.Size
	s.Verified[how]++
}

// drop discards a file whose bytes are wrong.
func (p *run) drop(t *transfer) {
	p.meter.bytes.Add(missing(t.in) - t.obj.Size)
	if err := p.head.release(t.obj.Size, t.in.Discard); err != nil {
		p.log.Warn("cannot remove a file with wrong bytes", "path", t.obj.Key, "error", err)
	}
}

// explain adds what to do about an object that is no longer the listed one. An object that was
// removed counts as changed, too: a retry helps.
func explain(err error) error {
	e, ok := errors.AsType[*backends.Error](err)
	if !ok {
		return err
	}
	out := *e
	switch e.Kind {
	case backends.Changed:
	case backends.NotExist:
		out.Kind = backends.Changed
		out.Err = fmt.Errorf("it was removed after it was listed (%w)", e.Err)
	default:
		return err
	}
	out.Err = fmt.Errorf("%w; run the command again to fetch the current objects", out.Err)
	return &out
}

package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
)

// ender is how both kinds of writers end.
type ender interface {
	Commit(ctx context.Context) (backends.Object, error)
	Abort() error
}

// writers starts a write of key in every way that the backend supports, one after the other. It
// calls f with each writer after writing the bytes of seed. A writer that f leaves, because the check
// ends there, is aborted.
func (c *check) writers(ctx context.Context, key, seed string, size int64, opts backends.CreateOptions, f func(how string, w ender)) {
	c.Helper()
	contents := ContentsOf(seed, size)
	for _, announced := range []int64{size, -1} {
		opts.Size = announced
		w := c.stream(ctx, key, io.NewSectionReader(contents, 0, size), opts)
		defer w.Abort() // f reports its error, unless it left
		f(fmt.Sprintf("as a stream of %d bytes", announced), w)
	}
	creator, ok := c.backend.(backends.PartCreator)
	if !ok {
		return
	}
	opts.Size = size
	w, err := creator.CreateParts(ctx, c.prefix+key, opts)
	if err != nil {
		c.Fatalf("create %q in parts: %v", key, err)
	}
	defer w.Abort() // f reports its error, unless it left
	length := c.capabilities.PartLength(size)
	for off := int64(0); off < size; off += length {
		part := backends.NewPart(contents, off, min(length, size-off))
		if err := w.WritePart(ctx, off, part); err != nil {
			c.Fatalf("writing %q: %v", key, err)
		}
	}
	f("in parts", w)
}

// stream writes contents to a new writer. If a busy server is unavailable during the write, as an
// HDFS is whose DataNode confirms a block late, it starts again like every caller of a backend.
func (c *check) stream(ctx context.Context, key string, contents *io.SectionReader, opts backends.CreateOptions) ender {
	c.Helper()
	for tries := 1; ; tries++ {
		w, err := c.backend.Create(ctx, c.prefix+key, opts)
		if err != nil {
			c.Fatalf("create %q: %v", key, err)
		}
		if _, err = contents.Seek(0, io.SeekStart); err == nil {
			_, err = io.Copy(w, contents)
		}
		if err == nil {
			return w
		}
		if tries == maxTries || backends.KindOf(err) != backends.Unavailable {
			_ = w.Abort() // the error of the write counts
			c.Fatalf("writing %q: %v", key, err)
		}
		c.Logf("writing %q again: %v", key, err)
		c.abort(w, "after an error")
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(tries) * 200 * time.Millisecond):
		}
	}
}

// maxTries is how often a write to an unavailable server is tried.
const maxTries = 5

func (c *check) abort(w ender, how string) {
	c.Helper()
	for i := range 3 {
		if err := w.Abort(); err != nil {
			c.Errorf("abort %d %s: %v", i+1, how, err)
		}
	}
}

func unseenBeforeCommit(c *check) {
	c.put("old", "old", 500)
	c.writers(c.ctx, "d/new", "new", 1000, backends.CreateOptions{}, func(how string, w ender) {
		c.wantMissing("d/new")
		c.abort(w, how)
	})
	c.writers(c.ctx, "old", "new", 1000, backends.CreateOptions{}, func(how string, w ender) {
		c.wantContents(c.stat("old"), "old", 500)
		c.abort(w, how)
		c.wantContents(c.stat("old"), "old", 500)
	})
}

func abortLeavesNothing(c *check) {
	c.writers(c.ctx, "d/e/k", "abort", 1000, backends.CreateOptions{}, func(how string, w ender) {
		c.abort(w, how)
		if got := c.keys(""); len(got) > 0 {
			c.Errorf("after abort %s there is %q", how, got)
		}
		if _, err := w.Commit(c.ctx); err == nil {
			c.Errorf("commit after abort %s works", how)
		}
		c.wantMissing("d/e/k")
	})
}

func sizeNotKept(c *check) {
	for _, written := range []int64{0, 999, 1001} {
		w, err := c.backend.Create(c.ctx, c.prefix+"k", backends.CreateOptions{Size: 1000})
		if err != nil {
			c.Fatalf("create: %v", err)
		}
		_, err = w.Write(ContentsOf("k", written).Bytes())
		if err == nil {
			_, err = w.Commit(c.ctx)
		}
		if err == nil {
			c.Errorf("1,000 bytes were announced and %d written, and commit works", written)
		}
		c.abort(w, "after a wrong size")
		c.wantMissing("k")
	}
}

func commitReplaces(c *check) {
	i := 0
	c.writers(c.ctx, "d/k", "replace", 2000, backends.CreateOptions{}, func(how string, w ender) {
		c.put("d/k", "before", int64(1000+i))
		i++
		obj, err := w.Commit(c.ctx)
		if err != nil {
			c.Fatalf("commit %s: %v", how, err)
		}
		stat := c.stat("d/k")
		if obj.Size != stat.Size || obj.Version != stat.Version || obj.Key != c.prefix+"d/k" {
			c.Errorf("commit %s = %+v, stat says %+v", how, obj, stat)
		}
		c.abort(w, "after commit")
		c.wantContents(c.stat("d/k"), "replace", 2000)
	})
}

func commitReplacesAtOnce(c *check) {
	if !c.capabilities.AtomicReplace {
		c.unmade("the store does not promise it")
	}
	c.put("k", "one", byTurns["one"])
	var done atomic.Bool
	var g errgroup.Group
	for range 3 {
		g.Go(func() error {
			for !done.Load() {
				if err := readReplaced(c.ctx, c.store, "k"); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for i := range 20 {
		seed := []string{"two", "one"}[i%2]
		c.put("k", seed, byTurns[seed])
	}
	done.Store(true)
	if err := g.Wait(); err != nil {
		c.Errorf("while the object is replaced: %v", err)
	}
}

func ifAbsent(c *check) {
	opts := backends.CreateOptions{IfAbsent: true}
	free := 0
	c.writers(c.ctx, "free", "first", 1000, opts, func(how string, w ender) {
		defer c.abort(w, how)
		if free++; free == 1 {
			if _, err := w.Commit(c.ctx); err != nil {
				c.Errorf("commit %s of a free key: %v", how, err)
			}
			return
		}
		_, err := w.Commit(c.ctx)
		c.wantKind("commit "+how+" of a key that is taken", err, backends.Exist)
	})
	c.wantContents(c.stat("free"), "first", 1000)
	for _, size := range c.smallAndLarge() {
		if _, err := c.store.Put(c.ctx, "free", ContentsOf("second", size), size, opts); !errors.Is(err, fs.ErrExist) {
			c.Errorf("putting %d bytes to a key that is taken: got %v, want fs.ErrExist", size, err)
			return // the wrong contents now are not another failure
		}
		c.wantContents(c.stat("free"), "first", 1000)
	}
}

func ifAbsentAtOnce(c *check) {
	if !c.capabilities.ConditionalCreate {
		c.unmade("the store does not promise it")
	}
	var won []int
	var mu sync.Mutex
	var g errgroup.Group
	for i := range 8 {
		g.Go(func() error {
			seed := fmt.Sprint("writer ", i)
			_, err := c.store.Put(c.ctx, "d/k", ContentsOf(seed, 1000), 1000, backends.CreateOptions{IfAbsent: true})
			if err == nil {
				mu.Lock()
				won = append(won, i)
				mu.Unlock()
			} else {
				c.wantKind(seed, err, backends.Exist)
			}
			return nil
		})
	}
	_ = g.Wait() // no function returns an error
	if len(won) != 1 {
		c.Fatalf("%v of eight writers won, want one", won)
	}
	c.wantContents(c.stat("d/k"), fmt.Sprint("writer ", won[0]), 1000)
}

func partsAnyOrder(c *check) {
	creator, ok := c.backend.(backends.PartCreator)
	if !ok {
		c.unmade("the store takes no parts")
	}
	part := c.capabilities.PartSize
	size := 3*part + 7
	if size > c.opts.MaxSize {
		c.unmade(fmt.Sprintf("%d bytes are more than MaxSize", size))
	}
	contents := ContentsOf("parts", size)
	w, err := creator.CreateParts(c.ctx, c.prefix+"k", backends.CreateOptions{Size: size})
	if err != nil {
		c.Fatalf("create: %v", err)
	}
	defer c.abort(w, "in parts")
	var g errgroup.Group
	for _, i := range []int64{3, 1, 2, 0} {
		g.Go(func() error {
			n := min(part, size-i*part)
			if i == 1 { // written with wrong bytes first
				if err := w.WritePart(c.ctx, i*part, backends.NewPart(ContentsOf("wrong", n), 0, n)); err != nil {
					return err
				}
			}
			return w.WritePart(c.ctx, i*part, backends.NewPart(contents, i*part, n))
		})
	}
	if err := g.Wait(); err != nil {
		c.Fatalf("writing parts: %v", err)
	}
	c.wantMissing("k")
	if _, err := w.Commit(c.ctx); err != nil {
		c.Fatalf("commit: %v", err)
	}
	c.wantContents(c.stat("k"), "parts", size)

	// A part that was never written.
	w, err = creator.CreateParts(c.ctx, c.prefix+"hole", backends.CreateOptions{Size: size})
	if err != nil {
		c.Fatalf("create: %v", err)
	}
	defer c.abort(w, "with a hole")
	for _, off := range []int64{0, 2 * part} {
		if err := w.WritePart(c.ctx, off, backends.NewPart(contents, off, part)); err != nil {
			c.Fatalf("writing parts: %v", err)
		}
	}
	if _, err := w.Commit(c.ctx); err == nil {
		c.Errorf("commit works though two of four parts are missing")
	}
	c.wantMissing("hole")
}

func deleteTwice(c *check) {
	c.put("d/k", "delete", 10)
	c.put("d/other", "other", 10)
	for i := range 3 {
		if err := c.store.Delete(c.ctx, "d/k"); err != nil {
			c.Errorf("delete %d: %v", i+1, err)
		}
		c.wantMissing("d/k")
	}
	for _, key := range []string{"d", "d/", "d/other/x", "nowhere/k"} {
		if err := c.store.Delete(c.ctx, key); err != nil {
			c.Errorf("deleting %q, which is no object: %v", key, err)
		}
	}
	c.wantContents(c.stat("d/other"), "other", 10)
	c.put("d/k", "again", 20)
	c.wantContents(c.stat("d/k"), "again", 20)
}

func cancelledWriting(c *check) {
	for _, opts := range []backends.CreateOptions{{}, {IfAbsent: true}} {
		ctx, cancel := context.WithCancel(c.ctx)
		defer cancel()
		c.writers(ctx, "k", "cancel", 1000, opts, func(how string, w ender) {
			ended, cancel := context.WithCancel(c.ctx)
			cancel()
			c.within("commit "+how, func() {
				_, err := w.Commit(ended)
				c.wantKind("commit "+how+" after the context ended", err, backends.Canceled)
			})
			c.abort(w, how)
			c.wantMissing("k")
		})
		w, err := c.backend.Create(ctx, c.prefix+"k", backends.CreateOptions{Size: -1})
		if err != nil {
			c.Fatalf("create: %v", err)
		}
		cancel()
		c.within("abort", func() { c.abort(w, "after the context of Create ended") })
		c.wantMissing("k")
	}
}

// broken returns the store with scripted faults around its backend.
func (c *check) broken(faults *Faults) *backends.Store {
	return backends.NewStore(faults.Wrap(c.backend), c.store.Name(), backends.Options{}).Sub(c.prefix)
}

func brokenStreams(c *check) {
	const size = 2<<20 + 5
	c.put("k", "broken", size)
	obj := c.stat("k")
	for i := range 5 {
		c.put(fmt.Sprintf("l/%d", i), "list", 1)
	}
	var faults Faults
	store := c.broken(&faults)
	faults.Add(Read, Cut(0), Cut(1), Fail(backends.Unavailable), Cut(1<<20+1), Break(99, errors.New("reset")))
	faults.Add(List, Cut(0), Cut(2), Fail(backends.Throttled), Cut(4))
	to := &comparing{want: ContentsOf("broken", size)}
	h := backends.CRC64NVME.New()
	_, err := store.ReadRange(c.ctx, obj, 0, size, to, h)
	if err != nil || to.wrong > 0 || to.bytes != size {
		c.Errorf("a stream that breaks: %d bytes came of %d, %d blocks wrong, %v", to.bytes, size, to.wrong, err)
	}
	if got, want := backends.SumOf(backends.CRC64NVME, h), to.want.Sum(backends.CRC64NVME); got != want {
		c.Errorf("the sum taken on the way is %v, want %v", got, want)
	}
	broken := *c
	broken.store = store
	if got := broken.keys("l/"); len(got) != 5 {
		c.Errorf("a listing that breaks has %q, want 5 keys", got)
	}
	if faults.Left() > 0 {
		c.Errorf("%d faults were not met", faults.Left())
	}
}

func failedWrites(c *check) {
	size := min(2*c.capabilities.PartSize+7, c.opts.MaxSize)
	var faults Faults
	store := c.broken(&faults)
	faults.Add(Create, Fail(backends.Unavailable))
	faults.Add(Write, Fail(backends.Unavailable), Lost(backends.Throttled), Lost(backends.Unavailable))
	faults.Add(Commit, Fail(backends.Unavailable), Fail(backends.Throttled))
	src := &reread{src: ContentsOf("failed", size)}
	if _, err := store.Put(c.ctx, "k", src, size, backends.CreateOptions{}); err != nil {
		c.Fatalf("put: %v", err)
	}
	c.wantContents(c.stat("k"), "failed", size)
	if read := src.bytes.Load(); read <= size {
		c.Errorf("%d bytes were read of a source of %d, though writes failed", read, size)
	}
	faults.Add(Write, Fail(backends.NoSpace))
	_, err := store.Put(c.ctx, "full", src, size, backends.CreateOptions{})
	c.wantKind("a write without space", err, backends.NoSpace)
	c.wantMissing("full")
}

// reread counts the bytes read from src.
type reread struct {
	src   io.ReaderAt
	bytes atomic.Int64
}

func (r *reread) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.src.ReadAt(p, off)
	r.bytes.Add(int64(n))
	return n, err
}

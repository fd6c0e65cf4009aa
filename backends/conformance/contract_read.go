package conformance

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
)

func sizes(c *check) {
	part := c.capabilities.PartSize
	for _, size := range []int64{0, 1, 4095, 4096, part - 1, part, part + 1, 2 * part, 3*part + 1} {
		if size > c.opts.MaxSize {
			c.Logf("left out: %d bytes are more than MaxSize", size)
			continue
		}
		key := fmt.Sprintf("size-%d", size)
		put, stat := c.put(key, key, size), c.stat(key)
		if put.Size != size {
			c.Errorf("%q is written with %d bytes, want %d", key, put.Size, size)
		}
		c.wantSum(put.Sum, key, key, size)
		c.wantContents(stat, key, size)
	}
}

func putReturnsStat(c *check) {
	before := time.Now().Add(-24 * time.Hour) // clocks differ, but not by years
	var stat backends.Object
	for _, size := range append([]int64{0, 1}, c.smallAndLarge()...) {
		put := c.put("d/k", "put", size)
		stat = c.stat("d/k")
		if put.Key != "d/k" || put.Size != size || stat.Size != size {
			c.Errorf("%d bytes are written as %q with %d bytes, and stat says %d", size, put.Key, put.Size, stat.Size)
		}
		if put.Version != stat.Version || put.Version == "" {
			c.Errorf("%d bytes are written as version %q, and stat says %q", size, put.Version, stat.Version)
		}
	}
	if !stat.ModTime.IsZero() && stat.ModTime.Before(before) {
		c.Errorf("ModTime of a new object is %v", stat.ModTime)
	}
}

func ranges(c *check) {
	const size = 1<<20 + 77
	obj := c.put("k", "ranges", size)
	want := ContentsOf("ranges", size).Bytes()
	for _, r := range []struct{ off, n int64 }{
		{0, 1}, {0, size}, {0, -1}, {1, 1}, {4095, 4098}, {1 << 19, 1 << 18}, {1 << 19, -1}, {size - 1, 1}, {size - 1, -1}, {size - 77, 77},
	} {
		exp := want[r.off:]
		if r.n >= 0 {
			exp = exp[:r.n]
		}
		if got, err := c.readAll(c.ctx, obj, r.off, r.n); err != nil || len(got) != len(exp) {
			c.Errorf("%d bytes at %d: got %d bytes, %v; want %d", r.n, r.off, len(got), err, len(exp))
		} else if !bytes.Equal(got, exp) {
			c.corrupt("%d bytes at %d are not those of the object", r.n, r.off)
		}
		to := make(memory, size)
		if _, err := c.store.ReadRange(c.ctx, obj, r.off, r.n, to, nil); err != nil {
			c.Errorf("ReadRange of %d bytes at %d: %v", r.n, r.off, err)
		} else if !bytes.Equal(to[r.off:][:len(exp)], exp) {
			c.corrupt("ReadRange of %d bytes at %d returns other bytes than the object has", r.n, r.off)
		}
	}
	if got, err := c.readAll(c.ctx, c.put("empty", "", 0), 0, -1); err != nil || len(got) > 0 {
		c.Errorf("the whole of an empty object: got %d bytes, %v; want none", len(got), err)
	}
}

// memory implements io.WriterAt on a slice.
type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

func rangesUnfit(c *check) {
	const size = 1000
	obj := c.put("k", "unfit", size)
	for _, r := range []struct {
		off, n int64
		most   int
	}{{0, size + 1, size}, {990, 20, 10}, {size, 1, 0}, {size + 1, 1, 0}, {2 * size, 10, 0}} {
		got, err := c.readAll(c.ctx, obj, r.off, r.n)
		if err == nil || len(got) > r.most {
			c.Errorf("%d bytes at %d of %d: got %d bytes, %v; want at most %d and an error", r.n, r.off, size, len(got), err, r.most)
		}
		if k := backends.KindOf(err); k == backends.NotExist || k == backends.Changed {
			c.Errorf("%d bytes at %d of %d: got kind %s (%v), though the object is there as it was", r.n, r.off, size, k, err)
		}
	}
	// The rest after the last byte is empty, or not a valid range.
	if got, err := c.readAll(c.ctx, obj, size, -1); len(got) > 0 || err != nil && backends.KindOf(err) != backends.Invalid {
		c.Errorf("the rest at the end: got %d bytes, %v; want none, or kind invalid", len(got), err)
	}
}

func oddReading(c *check) {
	const size = 1 << 20
	obj := c.put("k", "odd reading", size)
	want := ContentsOf("odd reading", size).Bytes()
	// Closed early, more often than there are connections.
	for i := range 4*c.store.Connections() + 4 {
		body := c.open(obj, int64(i), -1)
		if n, err := body.Read(make([]byte, 1+i%7)); err != nil || n == 0 {
			c.Errorf("the first read: %d, %v", n, err)
		}
		if err := body.Close(); err != nil {
			c.Errorf("closing a stream that is half read: %v", err)
		}
		_ = body.Close() // it must not panic
	}
	// Byte by byte, with empty reads in between.
	body := c.open(obj, 1000, 300)
	var got []byte
	for one := make([]byte, 1); ; {
		if n, err := body.Read(nil); n != 0 {
			c.Errorf("a read of nothing returns %d, %v", n, err)
		}
		n, err := body.Read(one)
		got = append(got, one[:n]...)
		if err != nil || len(got) > 300 {
			if err != io.EOF { // readers return io.EOF itself
				c.Errorf("at the end: %v, want io.EOF", err)
			}
			break
		}
	}
	if !bytes.Equal(got, want[1000:1300]) {
		c.corrupt("byte by byte %d bytes came, and not those of the object", len(got))
	}
	if err := body.Close(); err != nil {
		c.Errorf("closing at the end: %v", err)
	}
}

// changedSizes overwrite an object with another size and with the same size. The latter is harder
// for stores whose versions are size and time.
var changedSizes = []int64{900, 1000}

func versionRemoved(c *check) {
	for _, size := range changedSizes {
		key := fmt.Sprintf("k%d", size)
		c.put(key, "old", 1000)
		old := c.stat(key)
		c.put(key, "new", size)
		got, err := c.readAll(c.ctx, old, 0, 900)
		c.wantKind(fmt.Sprintf("reading the old version, got %d bytes", len(got)), err, backends.Changed)
		_, err = c.store.ReadRange(c.ctx, old, 0, 900, make(memory, 1000), nil)
		c.wantKind("ReadRange of the old version", err, backends.Changed)
		if now := c.stat(key); now.Version == old.Version {
			c.Errorf("the new object has the old one's version %q", now.Version)
		}
		c.wantContents(c.stat(key), "new", size)
		if err := c.store.Delete(c.ctx, key); err != nil {
			c.Errorf("delete: %v", err)
		}
		_, err = c.readAll(c.ctx, old, 0, 900)
		c.wantKind("reading what was deleted", err, backends.NotExist, backends.Changed)
	}
}

func changeBetweenRanges(c *check) {
	const size = 256 << 10
	c.put("k", "old", size)
	old := c.stat("k")
	half := make(memory, size)
	if _, err := c.store.ReadRange(c.ctx, old, 0, size/2, half, nil); err != nil {
		c.Fatalf("the first half: %v", err)
	}
	// Servers may look at the range before the version, and the new object may not have that range.
	for _, now := range []int64{size, 1000} {
		c.put("k", "new", now)
		_, err := c.store.ReadRange(c.ctx, old, size/2, size/2, half, nil)
		c.wantKind(fmt.Sprintf("the second half after a change to %d bytes", now), err, backends.Changed)
	}
}

func changeUnderWay(c *check) {
	size := min(int64(8<<20), c.opts.MaxSize)
	old := ContentsOf("old", size).Bytes()
	for _, remove := range []bool{false, true} {
		body, got := c.halfRead("k", size)
		changed := c.change("k", size, remove)
		select {
		case err := <-changed:
			changed <- err
		case <-time.After(prompt): // see changeWaits
		}
		rest, err := io.ReadAll(body)
		got = append(got, rest...)
		if err == nil && int64(len(got)) != size {
			c.Errorf("after a change under way the stream ends after %d bytes of %d without an error", len(got), size)
		}
		if err == nil && !bytes.Equal(got, old) {
			c.corrupt("a change under way makes a mixture of two versions (removed: %v)", remove)
		}
		if err != nil && !remove {
			c.wantKind("a change under way", err, backends.Changed, backends.NotExist)
		}
		_ = body.Close() // it was read to its end
		if err := <-changed; err != nil {
			c.Fatalf("changing an object that is read: %v", err)
		}
	}
}

// changeWaits checks that a reader that pauses does not hold up others that replace or remove the
// object, as in MinIO, which locks an object while it sends it.
func changeWaits(c *check) {
	size := min(int64(8<<20), c.opts.MaxSize)
	for what, remove := range map[string]bool{"replace": false, "remove": true} {
		body, _ := c.halfRead("k", size)
		changed := c.change("k", size, remove)
		select {
		case err := <-changed:
			changed <- err
		case <-time.After(prompt):
			c.Errorf("a request to %s an object waits until a reader of it ends: after %v it still waits", what, prompt)
		}
		_ = body.Close() // it is not read to its end
		if err := <-changed; err != nil {
			c.Errorf("a request to %s an object that is read: %v", what, err)
		}
	}
}

// halfRead writes "old" to an object, reads its beginning, and returns the stream of the rest.
func (c *check) halfRead(key string, size int64) (body io.ReadCloser, got []byte) {
	c.Helper()
	c.put(key, "old", size)
	body = c.open(c.stat(key), 0, size)
	got = make([]byte, 64<<10)
	if _, err := io.ReadFull(body, got); err != nil {
		c.Fatalf("the beginning: %v", err)
	}
	return body, got
}

// change writes "new" to an object, or removes it, in the background.
func (c *check) change(key string, size int64, remove bool) (done chan error) {
	done = make(chan error, 1)
	go func() {
		if remove {
			done <- c.store.Delete(c.ctx, key)
			return
		}
		_, err := c.store.Put(c.ctx, key, ContentsOf("new", size), size, backends.CreateOptions{})
		done <- err
	}()
	return done
}

func cancelledBefore(c *check) {
	c.put("k", "cancel", 1000)
	obj := c.stat("k")
	ctx, cancel := context.WithCancel(c.ctx)
	cancel()
	for name, call := range map[string]func() error{
		"stat":   func() error { _, err := c.store.Stat(ctx, "k"); return err },
		"read":   func() error { _, err := c.readAll(ctx, obj, 0, 1000); return err },
		"delete": func() error { return c.backend.Delete(ctx, c.prefix+"k") },
		"put": func() error {
			_, err := c.store.PutBytes(ctx, "new", []byte("x"), backends.CreateOptions{})
			return err
		},
		"list": func() (last error) {
			for _, err := range c.backend.List(ctx, c.prefix) {
				last = err
			}
			return last
		},
		"range": func() error { _, err := c.store.ReadRange(ctx, obj, 0, 1, make(memory, 1), nil); return err },
	} {
		c.within(name, func() { c.wantKind(name, call(), backends.Canceled) })
	}
	c.wantMissing("new")
	c.wantContents(c.stat("k"), "cancel", 1000)
}

func cancelledReading(c *check) {
	size := min(int64(16<<20), c.opts.MaxSize)
	c.put("k", "cancel", size)
	obj := c.stat("k")
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	body, err := c.backend.OpenRange(ctx, c.raw(obj), 0, size)
	if err != nil {
		c.Fatalf("open: %v", err)
	}
	if _, err := io.ReadFull(body, make([]byte, 1000)); err != nil {
		c.Fatalf("read: %v", err)
	}
	cancel()
	c.within("a stream", func() {
		_, err := io.Copy(io.Discard, body)
		c.wantKind("a stream after its context ended", err, backends.Canceled)
		_ = body.Close() // it failed
	})
	c.wantContents(obj, "cancel", size) // the discarded connection has no effect on others
}

func manyAtOnce(c *check) {
	const each = 4
	var g errgroup.Group
	var once sync.Map
	for w := range 8 {
		g.Go(func() error {
			for i := range each {
				key := fmt.Sprintf("w%d/%d", w, i)
				size := int64(w*30_000 + i)
				obj, err := c.store.Put(c.ctx, key, ContentsOf(key, size), size, backends.CreateOptions{})
				if err != nil {
					return err
				}
				c.wantContents(obj, key, size)
				once.Store(key, true)
				for listed, err := range c.store.List(c.ctx, fmt.Sprintf("w%d/", (w+i)%8)) {
					if err != nil {
						return err
					}
					if _, err := c.store.Stat(c.ctx, listed.Key); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		c.Errorf("with eight at once: %v", err)
	}
	once.Range(func(key, _ any) bool {
		c.stat(key.(string))
		return true
	})
	if got := len(c.keys("")); got != 8*each {
		c.Errorf("%d objects are listed, want %d", got, 8*each)
	}
}

package simulation

import (
	"context"
	"errors"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/stager/checkpoint"
	"github.com/stager-dev/stager/stager/download"
)

// Requests counts requests of HTTP by kind.
type Requests struct{ Get, Head, List, Put, Delete int64 }

func (r Requests) times(n int64) Requests {
	return Requests{r.Get * n, r.Head * n, r.List * n, r.Put * n, r.Delete * n}
}

func (r Requests) plus(o Requests) Requests {
	return Requests{r.Get + o.Get, r.Head + o.Head, r.List + o.List, r.Put + o.Put, r.Delete + o.Delete}
}

// Operations are the requests of one pod.
type Operations struct{ Shard, Save, Restore, Prune Requests }

const (
	partSize = 16 << 20 // of backends/s3
	pageSize = 1000     // keys of a page of a listing
)

// Measure counts what one shard, one save, one restore and the removal of one step cost. The files are
// smaller than those of the site, and so are their parts: there are as many.
func Measure(ctx context.Context, s Site, dir string) (ops Operations, err error) {
	const small = 64 << 10
	counting := &counter{Backend: mem.NewWith(backends.Capabilities{Parallelism: 8, PartSize: small, Checksum: backends.CRC64NVME})}
	store := backends.NewStore(counting, "mem", backends.Options{})
	push := func(step int64) error {
		path := filepath.Join(dir, "saved")
		body := make([]byte, s.Checkpoint/partSize*small)
		_, _ = rand.NewChaCha8([32]byte{byte(step)}).Read(body) // other bytes than before; it has no errors
		err := os.WriteFile(path, body, 0o600)
		if err == nil {
			_, err = checkpoint.PushCheckpoint(ctx, checkpoint.PushCheckpointConfig{Store: store, Path: path, Step: step})
		}
		return err
	}
	for step := range int64(s.Keep) {
		err = errors.Join(err, push(step))
	}
	counting.taken()
	err = errors.Join(err, push(int64(s.Keep)))
	ops.Save = counting.taken()
	_, failed := checkpoint.Restore(ctx, checkpoint.RestoreConfig{Store: store, Dir: filepath.Join(dir, "restored"), Step: checkpoint.Newest})
	err = errors.Join(err, failed)
	ops.Restore = counting.taken()
	ops.Restore.Get += download.Reads(s.Checkpoint, partSize) - download.Reads(s.Checkpoint/partSize*small, partSize) // of a file as large as the site's
	_, failed = checkpoint.Prune(ctx, checkpoint.PruneConfig{Store: store, Keep: checkpoint.Keep{Last: s.Keep}})
	ops.Prune = counting.taken()
	ops.Shard.Get = download.Reads(s.ShardSize, partSize)
	return ops, errors.Join(err, failed)
}

// counter counts the requests that a backend would send to an object store.
type counter struct {
	*mem.Backend
	mu    sync.Mutex // guards count
	count Requests
}

func (c *counter) add(r Requests) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count = c.count.plus(r)
}

func (c *counter) taken() Requests {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.count
	c.count = Requests{}
	return all
}

func (c *counter) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	c.add(Requests{List: 1}) // none here is longer than a page
	return c.Backend.List(ctx, prefix)
}

func (c *counter) Stat(ctx context.Context, key string) (backends.Object, error) {
	c.add(Requests{Head: 1})
	return c.Backend.Stat(ctx, key)
}

func (c *counter) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	c.add(Requests{Get: 1})
	return c.Backend.OpenRange(ctx, obj, off, n)
}

func (c *counter) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	c.add(Requests{Put: 1})
	return c.Backend.Create(ctx, key, opts)
}

func (c *counter) CreateParts(ctx context.Context, key string, opts backends.CreateOptions) (backends.PartWriter, error) {
	c.add(Requests{Put: 2}) // it is begun and completed
	w, err := c.Backend.CreateParts(ctx, key, opts)
	return parts{w, c}, err
}

func (c *counter) Delete(ctx context.Context, key string) error {
	c.add(Requests{Delete: 1})
	return c.Backend.Delete(ctx, key)
}

type parts struct {
	backends.PartWriter
	of *counter
}

func (p parts) WritePart(ctx context.Context, off int64, src *backends.Part) error {
	p.of.add(Requests{Put: 1})
	return p.PartWriter.WritePart(ctx, off, src)
}

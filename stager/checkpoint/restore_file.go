package checkpoint

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/sys"
	"github.com/stager-dev/stager/window/disk"
)

// fetchFile starts the download of one file, a large one in several ranges. The last range to
// finish verifies and closes the file.
func fetchFile(ctx context.Context, g *errgroup.Group, store *backends.Store, obj backends.Object, f File, root *os.Root, writing *disk.Writing, moved func(int64)) error {
	digest, err := backends.ParseChecksum(f.Digest)
	if err != nil {
		return err
	}
	if err := root.MkdirAll(path.Dir(f.Path), 0o755); err != nil {
		return err
	}
	opened, err := root.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(f.Mode)&0o777|0o600)
	if err != nil {
		return err
	}
	file, err := writing.Open(root, f.Path, opened, f.Size)
	if err != nil {
		return err
	}
	sums := rangeSums{digest: digest, length: rangeLength(store, digest.Algorithm), size: f.Size}
	n := sums.count()
	sums.parts = make([][]byte, n)
	left := n
	var mu sync.Mutex // guards left
	for i := range n {
		g.Go(func() error {
			off := int64(i) * sums.length
			h := digest.Algorithm.New()
			n := min(sums.length, f.Size-off)
			_, err := store.ReadRange(ctx, obj, off, n, &counted{file, moved}, h)
			sums.parts[i] = h.Sum(nil)
			writeOut(file.File, off, n)
			mu.Lock()
			defer mu.Unlock()
			if left--; left > 0 {
				return err
			}
			if cerr := file.Close(); err == nil {
				err = cerr
			}
			if ctx.Err() != nil || err != nil {
				return errors.Join(err, ctx.Err())
			}
			if err := differs(obj.Key, sums.join(), digest); err != nil {
				return err
			}
			if err := root.Chmod(f.Path, fs.FileMode(f.Mode)&0o777); err != nil {
				return err
			}
			return root.Chtimes(f.Path, f.Modified, f.Modified)
		})
	}
	return nil
}

// writeOut starts writeback of a range, so that syncAll has less to wait for.
func writeOut(file *os.File, off, n int64) {
	sys.StartWriteback(file, off, n) // syncAll reports errors
}

// rangeSums holds the checksums of a file's ranges.
type rangeSums struct {
	digest       backends.Checksum
	length, size int64
	parts        [][]byte
}

func (r *rangeSums) count() int { return max(1, int((r.size+r.length-1)/r.length)) }

func (r *rangeSums) join() backends.Checksum {
	total := r.parts[0]
	for i, sum := range r.parts[1:] {
		total = r.digest.Algorithm.Combine(total, sum, min(r.length, r.size-int64(i+1)*r.length))
	}
	return backends.Checksum{Algorithm: r.digest.Algorithm, Value: hex.EncodeToString(total)}
}

// rangeLength returns the length of a range, which suits the store's latency and bandwidth. Files
// are not divided when checksums of ranges cannot be combined.
func rangeLength(store *backends.Store, a backends.Algorithm) int64 {
	if !a.Combinable() {
		return math.MaxInt64 / 2
	}
	return max(store.Capabilities().PartSize, 32<<20)
}

// counted is a WriterAt that reports the bytes written.
type counted struct {
	io.WriterAt
	moved func(int64)
}

func (c *counted) WriteAt(p []byte, off int64) (int, error) {
	n, err := c.WriterAt.WriteAt(p, off)
	c.moved(int64(n))
	return n, err
}

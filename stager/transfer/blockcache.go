package transfer

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/bits"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
)

const (
	// maxBlock is the maximum length of a block, which one request reads: a part of most stores. If
	// parts are longer, blocks have shortBlock bytes; a store that reads a part twice then makes
	// the source send it twice.
	maxBlock, shortBlock = 16 << 20, 4 << 20
	// A block is read in ranges of this size, concurrently.
	piece = 8 << 20
	// minBuffer is the minimum size of a buffer.
	minBuffer = 64 << 10
)

// errSums is wrapped by errors about checksums that do not match.
var errSums = errors.New("the checksum differs")

// blockCache is one object under way. Store.Put reads it at any offset, from several goroutines. It
// caches some blocks, computes the checksum of each as it arrives, and withholds the last block
// unless the whole matches the checksum of the source.
type blockCache struct {
	ctx    context.Context // of the copy: io.ReaderAt has no context parameter
	src    *backends.Store
	obj    backends.Object
	length int64 // of a block, except the last
	count  int64 // number of blocks
	moved  func(int64)

	algorithms []backends.Algorithm // checksum algorithms for blocks
	ordered    hash.Hash            // set if the source's checksum cannot be combined: blocks are read in order, one at a time

	mu             sync.Mutex // guards all below
	changed        *sync.Cond
	sourceChecksum backends.Checksum
	err            error
	blocks         map[int64]*block
	spare          [][]byte
	missing        int64 // blocks that have never been read
	sums           map[backends.Algorithm][][]byte
	clock          int64
}

type block struct {
	bytes   []byte
	loading bool
	users   int
	ended   bool  // its last byte was read, and its first byte has not been since
	used    int64 // value of the cache's clock at the last use
}

// newBlockCache returns a cache that uses only the given buffers.
func newBlockCache(ctx context.Context, src *backends.Store, obj backends.Object, length int64, buffers [][]byte, algorithms []backends.Algorithm) *blockCache {
	c := &blockCache{
		ctx: ctx, src: src, obj: obj, sourceChecksum: obj.Sum, length: length, count: blocksOf(obj.Size, length), spare: buffers,
		blocks: make(map[int64]*block), sums: make(map[backends.Algorithm][][]byte), moved: func(int64) {},
	}
	c.changed = sync.NewCond(&c.mu)
	c.missing = c.count
	for _, a := range algorithms {
		switch {
		case a.Size() == 0 || c.sums[a] != nil:
		case c.count == 1 || a.Combinable():
			c.algorithms = append(c.algorithms, a)
			c.sums[a] = make([][]byte, c.count)
		case a == obj.Sum.Algorithm:
			c.ordered = a.New()
		}
	}
	if len(c.algorithms) == 0 { // for blocks that are read twice
		c.algorithms = append(c.algorithms, backends.CRC64NVME)
		c.sums[backends.CRC64NVME] = make([][]byte, c.count)
	}
	return c
}

func blocksOf(size, length int64) int64 { return (size + length - 1) / length }

// ReadAt implements io.ReaderAt.
func (c *blockCache) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		at := off + int64(n)
		if at >= c.obj.Size {
			return n, io.EOF
		}
		b, err := c.acquire(at / c.length)
		if err != nil {
			return n, err
		}
		from := at % c.length
		copied := copy(p[n:], b.bytes[from:])
		n += copied
		c.mu.Lock()
		b.users--
		b.ended = from+int64(copied) == int64(len(b.bytes))
		c.clock++
		b.used = c.clock
		c.changed.Broadcast()
		c.mu.Unlock()
	}
	return n, nil
}

// acquire returns a block that stays in memory while it has users.
func (c *blockCache) acquire(i int64) (*block, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil {
		b := c.blocks[i]
		switch {
		case b != nil && !b.loading:
			b.users++
			return b, nil
		case b != nil || !c.roomLocked():
			c.changed.Wait()
			continue
		}
		last := len(c.spare) - 1
		b = &block{bytes: c.spare[last][:min(c.length, c.obj.Size-i*c.length)], loading: true}
		c.spare, c.blocks[i] = c.spare[:last], b
		c.mu.Unlock()
		reported, sums, err := c.load(i, b.bytes)
		c.mu.Lock()
		if err == nil {
			err = c.arrivedLocked(i, b.bytes, reported, sums)
		}
		if c.err == nil {
			c.err = err
		}
		b.loading = false
		c.changed.Broadcast()
	}
	return nil, c.err
}

// roomLocked ensures that there is a spare buffer. Of the blocks without users it evicts one that
// was read to its end, or else the least recently used one.
func (c *blockCache) roomLocked() bool {
	if len(c.spare) > 0 {
		return true
	}
	var victim *block
	var at int64
	for i, b := range c.blocks {
		if b.users > 0 || b.loading {
			continue
		}
		if victim == nil || b.ended && !victim.ended || b.ended == victim.ended && b.used < victim.used {
			victim, at = b, i
		}
	}
	if victim == nil {
		return false
	}
	delete(c.blocks, at)
	c.spare = append(c.spare, victim.bytes[:cap(victim.bytes)])
	return true
}

// load reads the i-th block and computes its checksums.
func (c *blockCache) load(i int64, into []byte) (reported backends.Checksum, sums map[backends.Algorithm][]byte, err error) {
	g, ctx := errgroup.WithContext(c.ctx)
	var mu sync.Mutex // guards reported
	start := i * c.length
	for off := int64(0); off < int64(len(into)); off += piece {
		g.Go(func() error {
			sum, err := c.src.ReadRange(ctx, c.obj, start+off, min(piece, int64(len(into))-off), backends.Stretch{Bytes: into, Off: start}, nil)
			mu.Lock()
			defer mu.Unlock()
			if reported.IsZero() {
				reported = sum
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return reported, nil, err
	}
	sums = make(map[backends.Algorithm][]byte, len(c.algorithms))
	for _, a := range c.algorithms {
		h := a.New()
		h.Write(into)
		sums[a] = h.Sum(nil)
	}
	return reported, sums, nil
}

// arrivedLocked records the checksums of a block, and verifies the whole after the last block.
func (c *blockCache) arrivedLocked(i int64, p []byte, reported backends.Checksum, sums map[backends.Algorithm][]byte) error {
	again := false
	for a, sum := range sums {
		if have := c.sums[a][i]; have != nil {
			again = true
			if string(have) != string(sum) {
				return c.corrupt("two reads of the same range differ")
			}
		}
		c.sums[a][i] = sum
	}
	if c.sourceChecksum.IsZero() {
		c.sourceChecksum = reported
	}
	if again {
		return nil
	}
	if c.ordered != nil {
		c.ordered.Write(p)
	}
	c.missing--
	c.moved(int64(len(p)))
	if c.missing > 0 {
		return nil
	}
	if got, ok := c.sumLocked(c.sourceChecksum.Algorithm, p); ok && got != c.sourceChecksum {
		return c.corrupt("the source has %s, the received bytes have %s", c.sourceChecksum, got)
	}
	return nil
}

func (c *blockCache) corrupt(format string, args ...any) error {
	return &backends.Error{
		Op: "read", Store: c.src.Name(), Key: c.obj.Key, Kind: backends.Corrupt,
		Err: fmt.Errorf("%w: %s", errSums, fmt.Sprintf(format, args...)),
	}
}

// sourceSum returns the checksum that the source reported, in the listing or while reading.
func (c *blockCache) sourceSum() backends.Checksum {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sourceChecksum
}

// sum returns the checksum of all bytes that were read, if it is known.
func (c *blockCache) sum(a backends.Algorithm) (backends.Checksum, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var only []byte
	if b := c.blocks[0]; c.count == 1 && b != nil && !b.loading {
		only = b.bytes
	}
	return c.sumLocked(a, only)
}

// sumLocked computes it from the bytes of the only block, if there is just one and it is in memory.
func (c *blockCache) sumLocked(a backends.Algorithm, only []byte) (backends.Checksum, bool) {
	h := a.New()
	switch {
	case h == nil || c.missing > 0:
		return backends.Checksum{}, false
	case c.ordered != nil && a == c.sourceChecksum.Algorithm:
		return backends.SumOf(a, c.ordered), true
	case c.count == 0:
		return backends.SumOf(a, h), true
	case c.sums[a] != nil:
		whole := c.sums[a][0]
		for i := int64(1); i < c.count; i++ {
			whole = a.Combine(whole, c.sums[a][i], min(c.length, c.obj.Size-i*c.length))
		}
		return backends.Checksum{Algorithm: a, Value: hex.EncodeToString(whole)}, true
	case c.count == 1 && only != nil:
		h.Write(only)
		return backends.SumOf(a, h), true
	}
	return backends.Checksum{}, false
}

// close releases the buffers. A request may still read for a moment after its response has arrived;
// it gets an error.
func (c *blockCache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = errors.New("the copy of this object has ended")
	for i, b := range c.blocks {
		for b.users > 0 || b.loading {
			c.changed.Wait()
		}
		delete(c.blocks, i)
		c.spare = append(c.spare, b.bytes[:cap(b.bytes)])
	}
	giveBack(c.spare)
	c.spare = nil
}

// buffers are pooled by size, in powers of two.
var buffers [64]sync.Pool

// bufferSize returns the size of a buffer for n bytes.
func bufferSize(n int64) int64 { return 1 << bits.Len64(uint64(max(n, minBuffer)-1)) }

// borrow returns count buffers for n bytes each.
func borrow(count, n int64) [][]byte {
	size := bufferSize(n)
	out := make([][]byte, count)
	for i := range out {
		if b, ok := buffers[bits.Len64(uint64(size))].Get().(*[]byte); ok {
			out[i] = *b
		} else {
			out[i] = make([]byte, size)
		}
	}
	return out
}

// giveBack returns buffers that are no longer used to the pool.
func giveBack(all [][]byte) {
	for _, b := range all {
		b = b[:cap(b)]
		buffers[bits.Len64(uint64(len(b)))].Put(&b)
	}
}

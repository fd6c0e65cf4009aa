package catalogue

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/stager-dev/stager/backends"
)

// decoded is the number of decoded blocks in memory.
const decoded = 8

// Catalogue is a finished list of objects. Its methods are safe for concurrent use.
type Catalogue struct {
	file   *os.File // nil: all is in memory
	inFile int64    // the bytes of blocks in the file; later blocks are in memory
	room   int64    // what the file may take
	memory []byte
	starts []int64  // of each block, and the end of the last one
	sums   []uint64 // of each block, see sum
	n      int

	mu     sync.Mutex // guards all below
	recent [decoded]block
	turn   int // the block of recent that is replaced next
	raw    []byte
}

// block is a decoded block.
type block struct {
	number  int
	objects []backends.Object // nil: none
}

// Len returns the number of objects.
func (c *Catalogue) Len() int { return c.n }

// At returns the object at an index, which must be less than Len. An error means that the file is
// damaged or cannot be read; the source must be listed again.
func (c *Catalogue) At(i int) (backends.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	number := i / PerBlock
	for _, b := range c.recent {
		if b.number == number && b.objects != nil {
			return b.objects[i%PerBlock], nil
		}
	}
	objects, err := c.readLocked(number)
	if err != nil {
		return backends.Object{}, fmt.Errorf("the catalogue of objects cannot be read at object %d of %d: %w; restart stager, which lists the source again", i, c.n, err)
	}
	c.recent[c.turn] = block{number, objects}
	c.turn = (c.turn + 1) % decoded
	return objects[i%PerBlock], nil
}

// readLocked reads and decodes a block.
func (c *Catalogue) readLocked(number int) ([]backends.Object, error) {
	from, to := c.starts[number], c.starts[number+1]
	var raw []byte
	if from >= c.inFile {
		raw = c.memory[from-c.inFile : to-c.inFile]
	} else {
		if int64(cap(c.raw)) < to-from {
			c.raw = make([]byte, to-from)
		}
		raw = c.raw[:to-from]
		if _, err := c.file.ReadAt(raw, from); err != nil {
			return nil, err
		}
	}
	if sum(raw) != c.sums[number] {
		return nil, errDamaged
	}
	return decode(raw, min(PerBlock, c.n-number*PerBlock))
}

// OnDisk returns the number of bytes of disk that the catalogue takes.
func (c *Catalogue) OnDisk() (int64, error) {
	if c.file == nil {
		return 0, nil
	}
	info, err := c.file.Stat()
	if err != nil {
		return 0, err
	}
	return max(info.Size(), info.Sys().(*syscall.Stat_t).Blocks*512), nil
}

// Close releases the file. Do not call At afterwards.
func (c *Catalogue) Close() error {
	if c.file == nil {
		return nil
	}
	return c.file.Close()
}

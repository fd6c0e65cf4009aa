package conformance

import (
	"encoding/binary"
	"encoding/hex"
	"hash"
	"hash/fnv"
	"io"
	"math"

	"github.com/stager-dev/stager/backends"
)

// Contents are bytes generated from a key. They take no memory, whatever their size, and differ
// from those of any other key at any offset. Contents is an io.ReaderAt and is safe for concurrent
// use.
type Contents struct {
	seed uint64
	size int64
}

// period is the number of bytes after which contents repeat, which makes their checksums cheap. It
// is a prime number of words, so that no two ranges of a round size are equal.
const period = 8 * 131_101

// ContentsOf returns contents of size bytes generated from key.
func ContentsOf(key string, size int64) *Contents {
	h := fnv.New64a()
	h.Write([]byte(key))
	return &Contents{h.Sum64(), size}
}

// Size returns the number of bytes.
func (c *Contents) Size() int64 { return c.size }

// ReadAt implements io.ReaderAt.
func (c *Contents) ReadAt(p []byte, off int64) (n int, err error) {
	if off >= c.size {
		return 0, io.EOF
	}
	if left := c.size - off; int64(len(p)) > left {
		p, err = p[:left], io.EOF
	}
	var words [512 * 8]byte
	for n < len(p) {
		pos := (off + int64(n)) % period
		first := pos / 8
		c.generate(&words, first)
		n += copy(p[n:], words[pos%8:min(period-first*8, int64(len(words)))])
	}
	return n, err
}

// generate sets all words, beginning with the first of the period. The race detector would look at
// each byte, which was half of the time of the backends' tests. It looks at the caller's copy as one.
//
//go:norace
func (c *Contents) generate(words *[512 * 8]byte, first int64) {
	for i := range int64(len(words) / 8) {
		binary.LittleEndian.PutUint64(words[i*8:], c.word(first+i))
	}
}

// word returns the i-th word of the period: a mixed counter.
func (c *Contents) word(i int64) uint64 {
	x := c.seed + uint64(i)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Bytes returns the contents in memory.
func (c *Contents) Bytes() []byte {
	p := make([]byte, c.size)
	_, _ = c.ReadAt(p, 0) // generating bytes cannot fail
	return p
}

// Sum returns the checksum of the contents. For a Combinable algorithm the cost is the same for a
// terabyte as for a megabyte.
func (c *Contents) Sum(a backends.Algorithm) backends.Checksum {
	h := a.New()
	if !a.Combinable() || c.size <= period {
		c.feed(h, c.size)
		return backends.SumOf(a, h)
	}
	c.feed(h, period)
	square, length := h.Sum(nil), int64(period) // the checksum of 1, 2, 4 … periods
	h.Reset()
	sum := h.Sum(nil)
	for times := c.size / period; times > 0; times >>= 1 {
		if times&1 == 1 {
			sum = a.Combine(sum, square, length)
		}
		square = a.Combine(square, square, length)
		length = min(length, math.MaxInt64/2) * 2 // the last one is not used
	}
	h.Reset()
	c.feed(h, c.size%period)
	return backends.Checksum{Algorithm: a, Value: hex.EncodeToString(a.Combine(sum, h.Sum(nil), c.size%period))}
}

func (c *Contents) feed(h hash.Hash, n int64) {
	_, _ = io.Copy(h, io.NewSectionReader(c, 0, n)) // neither side can fail
}

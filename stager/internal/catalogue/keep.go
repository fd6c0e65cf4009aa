package catalogue

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"os"

	"github.com/stager-dev/stager/backends"
)

// A file that another process may open ends with an index:
//
//	stamp text                  see Keep
//	objects uvarint
//	length uvarint              of each block
//	its start                   8 bytes, little-endian
//	its CRC-32C                 4 bytes, of all before
//	magic                       8 bytes
const (
	magic   = "stagcat2"
	tailLen = 8 + 4 + int64(len(magic))
)

// Limits of what a file makes its reader allocate: other processes may have written it.
const (
	maxFile  = 1 << 30 // some 25 million objects
	maxIndex = 8 << 20
	maxBlock = 1 << 20
	// MostKept is the most bytes of disk that a file may take for Open to read it.
	MostKept = maxFile + maxIndex
	// minBlock is the length of a full block of the shortest objects.
	minBlock = sumLength + PerBlock*5
)

// ErrOther is returned by Open if a file has another stamp, or is no catalogue at all.
var ErrOther = errors.New("it is not the list of this source, or not of this version of stager")

// errTooLarge is the error of Keep for what Open would refuse.
var errTooLarge = errors.New("it is larger than any that a later process would read")

// RoomError is the error of Keep if the file may not take what all objects need.
type RoomError struct{ Need, Room int64 } // in bytes

func (e *RoomError) Error() string {
	return fmt.Sprintf("it takes %d bytes of the disk, and the window's size leaves it %d: increase the size", e.Need, e.Room)
}

// Keep completes the file, so that Open can read it. The stamp identifies the source and whatever
// else the list depends on. Keep returns nil if there is no file, because the catalogue is small,
// and a *RoomError if the file may not take that space.
func (c *Catalogue) Keep(stamp string) (*os.File, error) {
	if c.file == nil {
		return nil, nil
	}
	if c.inFile > maxFile {
		return nil, errTooLarge
	}
	if len(c.memory) > 0 {
		return nil, &RoomError{roundUp(c.inFile + int64(len(c.memory))), c.room}
	}
	index := binary.AppendUvarint(nil, uint64(len(stamp)))
	index = append(index, stamp...)
	index = binary.AppendUvarint(index, uint64(c.n))
	for i := range c.sums {
		length := c.starts[i+1] - c.starts[i]
		if length > maxBlock {
			return nil, errTooLarge
		}
		index = binary.AppendUvarint(index, uint64(length))
	}
	index = binary.LittleEndian.AppendUint64(index, uint64(c.inFile))
	index = binary.LittleEndian.AppendUint32(index, crc32.Checksum(index, castagnoli))
	index = append(index, magic...)
	if int64(len(index)) > maxIndex {
		return nil, errTooLarge
	}
	if need := roundUp(c.inFile + int64(len(index))); need > c.room {
		return nil, &RoomError{need, c.room}
	}
	if _, err := c.file.WriteAt(index, c.inFile); err != nil {
		return nil, fmt.Errorf("write the index of the catalogue: %w", err)
	}
	return c.file, nil
}

// Open returns the catalogue in a file that Keep has completed with the same stamp, and then owns the
// file. It verifies every block once; a block that changes later is an error of its objects. It
// returns an error that is ErrOther if the stamp is another one. After an error the caller closes the
// file.
func Open(file *os.File, stamp string) (*Catalogue, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	index, start, err := readIndex(file, info.Size())
	if err != nil {
		return nil, err
	}
	d := decoder{rest: index}
	if got := string(d.bytes(d.uvarint())); d.bad || got != stamp {
		return nil, ErrOther
	}
	n := d.uvarint()
	blocks := n/PerBlock + min(n%PerBlock, 1)
	if d.bad || n == 0 || blocks > uint64(len(d.rest)) || n/PerBlock*minBlock > uint64(start) {
		return nil, errDamaged
	}
	c := &Catalogue{file: file, inFile: start, n: int(n), starts: make([]int64, 1, blocks+1), sums: make([]uint64, 0, blocks)}
	for range blocks {
		length := d.uvarint()
		if d.bad || length < sumLength || length > maxBlock {
			return nil, errDamaged
		}
		c.starts = append(c.starts, c.starts[len(c.starts)-1]+int64(length))
	}
	if len(d.rest) > 0 || c.starts[blocks] != start {
		return nil, errDamaged
	}
	return c, c.verify()
}

// readIndex returns the index of a file, and where it starts.
func readIndex(file *os.File, size int64) (index []byte, start int64, err error) {
	if size < tailLen || size > maxFile+maxIndex {
		return nil, 0, ErrOther
	}
	tail := make([]byte, tailLen)
	if _, err := file.ReadAt(tail, size-tailLen); err != nil {
		return nil, 0, err
	}
	start = int64(binary.LittleEndian.Uint64(tail))
	if string(tail[12:]) != magic {
		return nil, 0, ErrOther
	}
	if start < 0 || start > size-tailLen || size-start > maxIndex {
		return nil, 0, errDamaged
	}
	index = make([]byte, size-start)
	if _, err := file.ReadAt(index, start); err != nil {
		return nil, 0, err
	}
	sealed := len(index) - len(magic) - 4
	if binary.LittleEndian.Uint32(index[sealed:]) != crc32.Checksum(index[:sealed], castagnoli) {
		return nil, 0, errDamaged
	}
	return index[:sealed-8], start, nil
}

// verify reads every block once, and records its sum.
func (c *Catalogue) verify() error {
	from := bufio.NewReaderSize(io.NewSectionReader(c.file, 0, c.inFile), writeAtOnce)
	var block []byte
	for i := range len(c.starts) - 1 {
		block = append(block[:0], make([]byte, c.starts[i+1]-c.starts[i])...)
		if _, err := io.ReadFull(from, block); err != nil {
			return err
		}
		if binary.LittleEndian.Uint32(block) != crc32.Checksum(block[sumLength:], castagnoli) {
			return errDamaged
		}
		c.sums = append(c.sums, sum(block))
	}
	return nil
}

// All returns the objects in their order, like a listing. An error ends it.
func (c *Catalogue) All() iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		for i := range c.n {
			if obj, err := c.At(i); !yield(obj, err) || err != nil {
				return
			}
		}
	}
}

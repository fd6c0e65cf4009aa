package catalogue

import (
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/stager-dev/stager/backends"
)

const (
	// inMemory is the size up to which blocks stay in memory: some 20,000 objects.
	inMemory = 1 << 20
	// writeAtOnce is how many bytes of blocks are collected before they are written to the file.
	writeAtOnce = 256 << 10
)

// Writer creates a catalogue. Its methods must not be called concurrently.
type Writer struct {
	create  Create
	file    *os.File // nil while all is in memory
	room    int64    // what the file may take
	full    bool     // the room is used up: what follows stays in memory
	memory  []byte   // blocks that are not in the file
	written int64    // bytes in the file
	starts  []int64  // of each block, by its first byte
	sums    []uint64 // of each finished block, see sum
	n       int
	last    string // the key of the last object of the unfinished block
	limit   int    // a copy of inMemory, for tests
}

// Create returns an empty file that no other program writes to, and how many bytes it may take of the
// disk. The catalogue closes the file. What does not fit stays in memory.
type Create func() (file *os.File, room int64, err error)

// NewWriter returns an empty catalogue. create is called once, when the catalogue is too large for
// memory, or by Reserve.
func NewWriter(create Create) *Writer {
	return &Writer{create: create, limit: inMemory}
}

// InMemory returns an empty catalogue that stays in memory.
func InMemory() *Writer { return &Writer{full: true} }

// Reserve limits what the file may take from now on to room, or to what it takes already, and returns the
// limit. What does not fit stays in memory. Others may use the rest of the disk that create has promised.
func (w *Writer) Reserve(room int64) (int64, error) {
	if w.full {
		return roundUp(w.written), nil
	}
	if err := w.open(); err != nil {
		return 0, err
	}
	w.room = max(min(w.room, room), roundUp(w.written))
	return w.room, nil
}

// Add appends an object. The keys may have any order; sorted keys take the least space.
func (w *Writer) Add(obj backends.Object) error {
	if w.n == math.MaxInt32 {
		return fmt.Errorf("the source has more than %d objects; select fewer by include and exclude", math.MaxInt32)
	}
	if w.n%PerBlock == 0 {
		if err := w.begin(); err != nil {
			return err
		}
	}
	w.memory = appendObject(w.memory, w.last, obj)
	w.last = obj.Key
	w.n++
	return nil
}

// begin ends the last block and begins another one.
func (w *Writer) begin() error {
	w.end()
	if !w.full && (len(w.memory) >= w.limit || w.file != nil && len(w.memory) >= writeAtOnce) {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.starts = append(w.starts, w.written+int64(len(w.memory)))
	w.memory = append(w.memory, make([]byte, sumLength)...)
	w.last = ""
	return nil
}

// end stores the checksum of the last block.
func (w *Writer) end() {
	if n := len(w.starts); n > len(w.sums) {
		block := w.memory[w.starts[n-1]-w.written:]
		seal(block)
		w.sums = append(w.sums, sum(block))
	}
}

// open creates the file, unless it is there.
func (w *Writer) open() (err error) {
	if w.file != nil {
		return nil
	}
	if w.file, w.room, err = w.create(); err != nil {
		return fmt.Errorf("create the catalogue of objects: %w", err)
	}
	return nil
}

// flush moves finished blocks to the file, if there is room for them.
func (w *Writer) flush() error {
	if err := w.open(); err != nil {
		return err
	}
	if w.full = w.full || roundUp(w.written+int64(len(w.memory))) > w.room; w.full {
		return nil
	}
	if _, err := w.file.Write(w.memory); err != nil {
		return fmt.Errorf("write the catalogue of objects: %w", err)
	}
	w.written += int64(len(w.memory))
	w.memory = w.memory[:0]
	return nil
}

// Finish returns the catalogue. The Writer must not be used afterwards, except for Abort.
func (w *Writer) Finish() (*Catalogue, error) {
	w.end()
	if w.file != nil {
		if err := w.flush(); err != nil {
			return nil, err
		}
	}
	c := &Catalogue{
		file: w.file, inFile: w.written, room: w.room, memory: slices.Clip(w.memory),
		starts: append(w.starts, w.written+int64(len(w.memory))), sums: w.sums, n: w.n,
	}
	w.file = nil
	return c, nil
}

// roundUp returns what a file of a size takes of a disk, in blocks of 4 KiB.
func roundUp(size int64) int64 { return (size + 4095) &^ 4095 }

// Abort removes the catalogue, unless Finish has returned it.
func (w *Writer) Abort() error {
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}

package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"sync"
	"sync/atomic"
)

// pageSize is the alignment of the bytes of a file in memory that direct I/O needs.
const pageSize = 4 << 10

// Place learns where the bytes of a file begin in the responses to one kind of call. That depends on the
// headers before them, which rarely change. It is safe for concurrent use. The zero value is ready to use.
type Place struct{ at atomic.Uint32 }

// Expect prepares a call for a response with up to n bytes of a file. If these are many, and are where the
// last ones were, the connection receives them at the start of a page, as direct I/O needs. It accepts any
// other response, too.
func (p *Place) Expect(e *Encoder, n int) { e.data = expected{at: int(p.at.Load()), n: n} }

// Learn records where in a response the n bytes of a file are that were decoded last, by Opaque.
func (p *Place) Learn(r *Reply, n int) {
	at := uint32(len(r.record.bytes()) - r.Len() - (n+3)&^3)
	if p.at.Load() != at {
		p.at.Store(at)
	}
}

// expected describes the bytes of a file in a response: where they probably begin, and their maximum number.
type expected struct{ at, n int }

// around is the usual maximum of the bytes before and after the bytes of a file.
const around = 2 << 10

// record returns an empty record for a response whose first fragment has n bytes.
func (x expected) record(n int) record {
	if x.n <= shortMessage {
		return record{b: getBuffer(n)}
	}
	start := -x.at & (pageSize - 1)
	b := getBuffer(start + max(n, x.n+around)) // more fragments may follow
	return record{b: b[:start], start: start}
}

// record is a received message.
type record struct {
	b     []byte // a buffer with the message at its end
	start int    // of the message in b
}

func (r *record) bytes() []byte { return r.b[r.start:] }

// release frees the memory of the record. It may be called more than once.
func (r *record) release() {
	putBuffer(r.b)
	*r = record{}
}

// readRecord reads the fragments of one record. It calls expect at most once, with the transaction id, for what the
// record probably contains.
func readRecord(in io.Reader, limit int, expect func(xid uint32) expected) (r record, err error) {
	defer func() {
		if err != nil {
			r.release()
		}
	}()
	for {
		var word [4]byte
		if _, err := io.ReadFull(in, word[:]); err != nil {
			return r, err
		}
		mark := binary.BigEndian.Uint32(word[:])
		n, last := int(mark&^(1<<31)), mark>>31 == 1
		if has := len(r.bytes()); n > limit-has {
			return r, fmt.Errorf("the server sent a message of %d bytes, want at most %d", has+n, limit)
		}
		if r.b == nil && n >= len(word) {
			if _, err := io.ReadFull(in, word[:]); err != nil {
				return r, noEOF(err)
			}
			r = expect(binary.BigEndian.Uint32(word[:])).record(n)
			r.b = append(r.b, word[:]...)
			n -= len(word)
		}
		if _, err := io.ReadFull(in, r.grow(n)); err != nil {
			return r, noEOF(err)
		}
		if last {
			return r, nil
		}
	}
}

// grow appends n bytes for the caller to fill.
func (r *record) grow(n int) []byte {
	at := len(r.b)
	if need := at + n; need > cap(r.b) {
		old := r.b
		r.b = append(getBuffer(2*need), old...)
		putBuffer(old)
	}
	r.b = r.b[:at+n]
	return r.b[at:]
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Reply is the response to a call: a Decoder positioned at the results.
type Reply struct {
	Decoder
	record record
}

// Release frees the memory of the reply. Data decoded without a copy becomes invalid.
func (r *Reply) Release() {
	r.record.release()
	r.b = nil
	r.Fail(errors.New("the reply was released"))
}

// Short messages are cheap to allocate. The others get buffers of a few sizes, which are reused. These begin
// at a page, because the runtime allocates whole pages for more than 32 KiB.
const (
	shortMessage   = 16 << 10
	smallestBuffer = 32 << 10            // bytes of a file in a buffer of the first pool
	spare          = pageSize + 2*around // further bytes in each buffer
)

// buffers holds buffers for reuse. Those of pool i have room for smallestBuffer<<i bytes of a file, up to 16 MiB.
var buffers [10]sync.Pool

// bufferSize returns the size of the buffers of pool i.
func bufferSize(i int) int { return smallestBuffer<<i + spare }

// poolFor returns the pool whose buffers have room for n bytes. There may be none.
func poolFor(n int) int {
	return bits.Len(uint(max(n-spare-1, 0) / smallestBuffer))
}

// getBuffer returns an empty buffer for n bytes.
func getBuffer(n int) []byte {
	i := poolFor(n)
	if n <= shortMessage || i >= len(buffers) {
		return make([]byte, 0, n)
	}
	if p, ok := buffers[i].Get().(*[]byte); ok {
		return (*p)[:0]
	}
	return make([]byte, 0, bufferSize(i))
}

func putBuffer(b []byte) {
	if i := poolFor(cap(b)); i < len(buffers) && cap(b) == bufferSize(i) {
		b = b[:0]
		buffers[i].Put(&b)
	}
}

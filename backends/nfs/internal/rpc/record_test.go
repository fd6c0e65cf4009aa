package rpc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/iotest"
	"unsafe"
)

// fragments returns a message as a record of fragments that end at the given places, and at its end.
func fragments(message []byte, ends ...int) []byte {
	var b []byte
	from := 0
	for _, end := range append(ends, len(message)) {
		mark := uint32(end - from)
		if end == len(message) {
			mark |= 1 << 31
		}
		b = binary.BigEndian.AppendUint32(b, mark)
		b = append(b, message[from:end]...)
		from = end
	}
	return b
}

// pageOffset returns where in a page of memory p begins.
func pageOffset(p []byte) int {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(p))) & (pageSize - 1))
}

// pattern returns n bytes that depend on seed.
func pattern(n, seed int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i>>8 ^ i*7 ^ seed)
	}
	return p
}

// Each combination of bytes before and after the bytes of a file, of the expectation, and of fragments is
// received twice, so that the second record is in the buffer of the first.
func TestRecordsArriveWholeAndAtAPageIfExpected(t *testing.T) {
	const before, limit = 104, 1 << 20
	for _, size := range []int{0, 1, 4095, shortMessage, shortMessage + 1, smallestBuffer, 65_537, 512 << 10} {
		for _, after := range []int{0, 100, 3 * around} {
			message := pattern(before+size+after, size)
			for _, at := range []int{before, before + pageSize, 0, before + 8, 4095, 1<<31 - 1} {
				for _, n := range []int{size, 0, size / 2, 2*size + 1} {
					for _, ends := range [][]int{nil, {0}, {3}, {4}, {5}, {before}, {3, 7, before + size}, {before + size/2, before + size/2}} {
						x := expected{at: at, n: n}
						for range 2 {
							in := bytes.NewReader(fragments(message, ends...))
							r, err := readRecord(in, limit, func(uint32) expected { return x })
							what := fmt.Sprintf("%d bytes with %d after them, %+v, fragments to %d", size, after, x, ends)
							if got := r.bytes(); err != nil || !bytes.Equal(got, message) {
								t.Fatalf("%s: got %d bytes (%v), want the message of %d", what, len(got), err, len(message))
							}
							known := len(ends) == 0 || ends[0] >= 4 // the first fragment has the transaction id
							if got := pageOffset(r.bytes()[before:]); known && at%pageSize == before && n > shortMessage && got != 0 {
								t.Fatalf("%s: got the bytes at %d of a page, want 0", what, got)
							}
							size := cap(r.b)
							r.release()
							r.release() // does nothing
							a, b, c := getBuffer(size), getBuffer(size), getBuffer(size)
							if p := unsafe.SliceData(a); p == unsafe.SliceData(b) || p == unsafe.SliceData(c) {
								t.Fatalf("%s: got the same buffer for two records", what)
							}
							putBuffer(a)
							putBuffer(b)
							putBuffer(c)
						}
					}
				}
			}
		}
	}
}

// A record that is longer than the limit is refused before it gets memory, whatever its call expects. One
// that ends early is an error at each place.
func TestRecordsThatAreTooLongOrShort(t *testing.T) {
	message := pattern(40_000, 1)
	for _, n := range []int{0, 20_000, 1 << 20} {
		x := func(uint32) expected { return expected{at: 104, n: n} }
		for _, ends := range [][]int{nil, {3}, {30_000}, {10, 39_999}} {
			whole := fragments(message, ends...)
			if _, err := readRecord(bytes.NewReader(whole), len(message), x); err != nil {
				t.Errorf("n %d, fragments to %d: got %v, want no error at the limit", n, ends, err)
			}
			if _, err := readRecord(bytes.NewReader(whole), len(message)-1, x); err == nil {
				t.Errorf("n %d, fragments to %d: got no error, want one beyond the limit", n, ends)
			}
			for _, end := range []int{0, 1, 4, 5, 7, 8, 13, 20_000, len(whole) - 1} {
				if _, err := readRecord(iotest.OneByteReader(bytes.NewReader(whole[:end])), 1<<20, x); err != io.EOF && err != io.ErrUnexpectedEOF {
					t.Errorf("n %d, fragments to %d, cut at %d: got %v, want an early end", n, ends, end, err)
				}
			}
		}
	}
	endless := func(uint32) expected { t.Error("memory was requested"); return expected{} }
	if _, err := readRecord(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1}), 1<<20, endless); err == nil {
		t.Error("got no error, want one for a message of 2 GiB")
	}
}

func TestBuffersHaveTheirSizes(t *testing.T) {
	for n := 1; n < 20<<20; n += 1 + n/7 {
		b := getBuffer(n)
		i := poolFor(n)
		pooled := n > shortMessage && i < len(buffers)
		switch {
		case len(b) != 0 || cap(b) < n:
			t.Errorf("%d: got %d of %d bytes, want an empty buffer with room", n, len(b), cap(b))
		case pooled && (cap(b) != bufferSize(i) || poolFor(cap(b)) != i || pageOffset(b[:1]) != 0):
			t.Errorf("%d: got %d bytes at %d of a page, want %d at a page", n, cap(b), pageOffset(b[:1]), bufferSize(i))
		case pooled && i > 0 && bufferSize(i-1) >= n:
			t.Errorf("%d: got %d bytes, want %d", n, cap(b), bufferSize(i-1))
		}
		putBuffer(b)
	}
	for size := smallestBuffer; size <= 16<<20; size *= 2 {
		if got := cap(getBuffer(pageSize - 1 + size + around)); got != size+spare {
			t.Errorf("a block of %d bytes: got a buffer of %d, want %d", size, got, size+spare)
		}
	}
}

// The bytes of a server whose headers have another length are at a page from the second response on.
func TestPlaceLearns(t *testing.T) {
	const size = 20_000
	c := client(t, serve(t, func(c net.Conn) {
		for {
			xid, words, err := receive(c)
			if err != nil {
				return
			}
			var e Encoder
			e.b = reply(xid, append(make([]uint32, 1+words), size)...)
			_, _ = e.Write(pattern(size, int(words)))
			_, _ = e.finish()
			_, _ = c.Write(e.b)
		}
	}), Options{})
	var place Place
	for _, words := range []int{0, 20, 2000, 3} {
		for i := range 3 {
			msg := NewCall(Credential{}, 7, 1, 1, 0)
			msg.Uint32(uint32(words))
			place.Expect(msg, size)
			r, err := c.Call(t.Context(), msg)
			if err != nil {
				t.Fatal(err)
			}
			r.Fixed(4 * words)
			data := r.Opaque(size)
			place.Learn(r, len(data))
			if !bytes.Equal(data, pattern(size, words)) {
				t.Errorf("%d words before: got %d other bytes, want %d", words, len(data), size)
			}
			if got := pageOffset(data); (got == 0) != (i > 0) {
				t.Errorf("%d words before, response %d: got the bytes at %d of a page, want 0 from the second on", words, i+1, got)
			}
			r.Release()
		}
	}
}

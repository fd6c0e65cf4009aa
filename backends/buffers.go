package backends

import (
	"sync"
	"unsafe"
)

// Buffers between the network and the file. They are page-aligned. Writes of whole buffers start at
// multiples of the buffer size if the range does, so direct I/O needs no extra copy.
const (
	largeBuffer  = 512 << 10
	mediumBuffer = 256 << 10 // for more requests than minConcurrency: these take as much as that many large ones
	smallBuffer  = 64 << 10  // for ranges up to this size, and for all when the limit exceeds boundStart
	tinyBuffer   = 16 << 10  // for short ranges with hundreds of requests
	few          = 64        // fewer requests than this count as few
	pageSize     = 4 << 10
)

var largeBuffers, mediumBuffers, smallBuffers, tinyBuffers = bufferPool(largeBuffer), bufferPool(mediumBuffer), bufferPool(smallBuffer), bufferPool(tinyBuffer)

func bufferPool(size int) *sync.Pool {
	return &sync.Pool{New: func() any {
		raw := make([]byte, size+pageSize)
		skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(raw))) & (pageSize - 1))
		buf := raw[skip : skip+size : skip+size]
		return &buf
	}}
}

// buffersFor returns the pool for a range of n bytes while up to others requests are in flight.
func buffersFor(n int64, others int) *sync.Pool {
	switch {
	case others <= minConcurrency && n > smallBuffer:
		return largeBuffers
	case others <= boundStart && n > smallBuffer:
		return mediumBuffers
	case others > few && n <= smallBuffer:
		return tinyBuffers
	}
	return smallBuffers
}

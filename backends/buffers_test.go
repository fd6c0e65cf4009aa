package backends

import "testing"

// Twice as many requests with buffers of the same size took 10 MB more.
func TestBuffersOfMoreRequestsAreSmaller(t *testing.T) {
	for _, tt := range []struct {
		bytes  int64
		limit  int
		buffer int
	}{
		{8 << 20, 1, 512 << 10},
		{8 << 20, minConcurrency, 512 << 10},
		{8 << 20, 2 * minConcurrency, 256 << 10},
		{8 << 20, boundStart, 256 << 10},
		{8 << 20, boundStart + 1, 64 << 10},
		{50 << 10, 1, 64 << 10},
		{50 << 10, few, 64 << 10},
		{50 << 10, few + 1, 16 << 10},
	} {
		if got := len(*buffersFor(tt.bytes, tt.limit).Get().(*[]byte)); got != tt.buffer {
			t.Errorf("a range of %d bytes with up to %d requests has a buffer of %d bytes, want %d", tt.bytes, tt.limit, got, tt.buffer)
		}
	}
}

package smb

import "testing"

// A stream from a distant server reads further ahead. Every stream returns its tokens.
func TestExtraChunks(t *testing.T) {
	for _, c := range []struct {
		far  bool
		want int
	}{{false, extraNear}, {true, extraFar}} {
		b := newBackend(&dialer{})
		b.pool.far.Store(c.far)
		for range 2 {
			var taken []*chunk
			for extra := b.newChunk(0, 1, true); extra != nil; extra = b.newChunk(0, 1, true) {
				taken = append(taken, extra)
			}
			if len(taken) != c.want {
				t.Errorf("far %v: %d extra chunks at once, want %d", c.far, len(taken), c.want)
			}
			if own := b.newChunk(0, 1, false); own == nil {
				t.Errorf("far %v: a stream did not get its own chunk", c.far)
			}
			for _, extra := range taken {
				close(extra.ready)
				extra.free()
			}
		}
	}
}

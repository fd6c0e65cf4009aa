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
		extra := extraChunks{b}
		for range 2 {
			taken := 0
			for extra.Acquire() {
				taken++
			}
			if taken != c.want {
				t.Errorf("far %v: %d extra chunks at once, want %d", c.far, taken, c.want)
			}
			for range taken {
				extra.Release()
			}
		}
	}
}

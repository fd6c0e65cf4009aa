package shuffle

import "testing"

// TestBelowDrawsAnew: with n just above 2^63 nearly half of all numbers are rejected.
func TestBelowDrawsAnew(t *testing.T) {
	draws := numbers{0, 2, 1 << 63}
	const n = 1<<63 + 1
	if got, want := Uint64N(n, &draws), uint64(1<<62); got != want || len(draws) != 0 {
		t.Errorf("got %d with %d draws left, want %d with none", got, len(draws), want)
	}
}

type numbers []uint64

func (s *numbers) Uint64() (n uint64) {
	n, *s = (*s)[0], (*s)[1:]
	return n
}

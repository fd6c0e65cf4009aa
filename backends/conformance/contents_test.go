package conformance_test

import (
	"bytes"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
)

func TestContentsAreTheSameFromAnyOffset(t *testing.T) {
	whole := conformance.ContentsOf("k", 3<<20+5).Bytes()
	for _, off := range []int64{0, 1, 7, 8, 4095, 1048807, 1048808, 2 << 20, 3<<20 + 4} {
		got := make([]byte, min(100_003, len(whole)-int(off)))
		if n, err := conformance.ContentsOf("k", 3<<20+5).ReadAt(got, off); n != len(got) || !bytes.Equal(got, whole[off:][:n]) {
			t.Errorf("ReadAt(%d) = %d, %v; the bytes differ from those of the whole", off, n, err)
		}
	}
	if other := conformance.ContentsOf("l", 3<<20+5).Bytes(); bytes.Equal(other[:16], whole[:16]) {
		t.Errorf("the contents of k and l both begin with %x", other[:16])
	}
}

func TestChecksumOfContentsMatchesBytes(t *testing.T) {
	for _, size := range []int64{0, 1, 1048808, 1048809, 5<<20 + 3} {
		c := conformance.ContentsOf("k", size)
		for _, a := range []backends.Algorithm{backends.CRC64NVME, backends.CRC64ECMA, backends.CRC32C, backends.CRC32, backends.SHA256} {
			h := a.New()
			h.Write(c.Bytes())
			if got, want := c.Sum(a), backends.SumOf(a, h); got != want {
				t.Errorf("%s of %d bytes = %v, want %v", a, size, got, want)
			}
		}
	}
	// A petabyte, without cost.
	if got := conformance.ContentsOf("k", 1<<50).Sum(backends.CRC64NVME); got.IsZero() {
		t.Error("a petabyte has no sum")
	}
}

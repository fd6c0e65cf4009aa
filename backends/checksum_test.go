package backends

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestCombineEqualsChecksumOfConcatenation(t *testing.T) {
	data := make([]byte, 1<<16)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(data)
	for _, a := range []Algorithm{CRC64NVME, CRC64ECMA, CRC32C, CRC32} {
		for _, cut := range []int{0, 1, 7, 4096, len(data) - 1, len(data)} {
			got := a.Combine(sum(a, data[:cut]), sum(a, data[cut:]), int64(len(data)-cut))
			if want := sum(a, data); !bytes.Equal(got, want) {
				t.Errorf("%s cut at %d: got %x, want %x", a, cut, got, want)
			}
		}
	}
}

func sum(a Algorithm, p []byte) []byte {
	h := a.New()
	h.Write(p)
	return h.Sum(nil)
}

func TestChecksumRoundTrip(t *testing.T) {
	for _, a := range []Algorithm{CRC64NVME, CRC64ECMA, CRC32C, CRC32, SHA256, SHA1, MD5} {
		c := SumOf(a, a.New())
		if got, err := ParseChecksum(c.String()); err != nil || got != c {
			t.Errorf("ParseChecksum(%q) = %v, %v; want %v", c, got, err, c)
		}
	}
	for _, bad := range []string{"crc32c", "crc32c:00", "rot13:00000000", "crc32c:0000000g"} {
		if got, err := ParseChecksum(bad); err == nil {
			t.Errorf("ParseChecksum(%q) = %v, want an error", bad, got)
		}
	}
}

func TestSizeIsThatOfTheHash(t *testing.T) {
	for _, a := range []Algorithm{CRC64NVME, CRC64ECMA, CRC32C, CRC32, SHA256, SHA1, MD5, "", "crc16"} {
		want := 0
		if h := a.New(); h != nil {
			want = h.Size()
		}
		if got := a.Size(); got != want {
			t.Errorf("%q: got %d bytes, want %d", a, got, want)
		}
	}
}

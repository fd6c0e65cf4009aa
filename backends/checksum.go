package backends

import (
	"crypto/md5"  // for integrity checks defined by stores, not for security
	"crypto/sha1" // the same
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"strings"

	"github.com/minio/crc64nvme"
)

// Algorithm names a checksum.
type Algorithm string

// The checksum algorithms that stores report.
const (
	CRC64NVME Algorithm = "crc64nvme" // S3's default
	CRC64ECMA Algorithm = "crc64ecma" // OSS
	CRC32C    Algorithm = "crc32c"    // S3, HDFS
	CRC32     Algorithm = "crc32"     // S3
	SHA256    Algorithm = "sha256"    // S3; recorded by checkpoints
	SHA1      Algorithm = "sha1"      // S3
	MD5       Algorithm = "md5"       // the ETag of a plain S3 upload
)

var (
	tableECMA       = crc64.MakeTable(crc64.ECMA)
	tableCastagnoli = crc32.MakeTable(crc32.Castagnoli)
)

var algorithms = map[Algorithm]struct {
	size int    // of a checksum, in bytes
	poly uint64 // generator polynomial of a CRC in reflected form; 0 for other algorithms
	hash func() hash.Hash
}{
	CRC64NVME: {crc64.Size, 0x9a6c9329ac4bc9b5, func() hash.Hash { return crc64nvme.New() }},
	CRC64ECMA: {crc64.Size, crc64.ECMA, func() hash.Hash { return crc64.New(tableECMA) }},
	CRC32C:    {crc32.Size, crc32.Castagnoli, func() hash.Hash { return crc32.New(tableCastagnoli) }},
	CRC32:     {crc32.Size, crc32.IEEE, func() hash.Hash { return crc32.NewIEEE() }},
	SHA256:    {size: sha256.Size, hash: sha256.New},
	SHA1:      {size: sha1.Size, hash: sha1.New}, // see the import
	MD5:       {size: md5.Size, hash: md5.New},   // see the import
}

// New returns a hash for the algorithm, or nil if it is unknown.
func (a Algorithm) New() hash.Hash {
	known, ok := algorithms[a]
	if !ok {
		return nil
	}
	return known.hash()
}

// Size returns the length of a checksum in bytes; 0 if the algorithm is unknown.
func (a Algorithm) Size() int { return algorithms[a].size }

// Checksum is the checksum of all bytes of an object. The zero value means unknown.
type Checksum struct {
	Algorithm Algorithm
	Value     string // lower-case hexadecimal, big-endian
}

// SumOf returns the current checksum of h.
func SumOf(a Algorithm, h hash.Hash) Checksum {
	return Checksum{a, hex.EncodeToString(h.Sum(nil))}
}

// IsZero reports whether the checksum is unknown.
func (c Checksum) IsZero() bool { return c == Checksum{} }

// String returns "algorithm:hex", or "" for the zero value.
func (c Checksum) String() string {
	if c.IsZero() {
		return ""
	}
	return string(c.Algorithm) + ":" + c.Value
}

// ParseChecksum parses the result of String.
func ParseChecksum(s string) (Checksum, error) {
	if s == "" {
		return Checksum{}, nil
	}
	a, v, ok := strings.Cut(s, ":")
	size := Algorithm(a).Size()
	if !ok || size == 0 {
		return Checksum{}, fmt.Errorf("%q is not algorithm:hex of a known algorithm", s)
	}
	if b, err := hex.DecodeString(v); err != nil || len(b) != size {
		return Checksum{}, fmt.Errorf("%q does not hold %d bytes in hexadecimal", s, size)
	}
	return Checksum{Algorithm(a), strings.ToLower(v)}, nil
}

// The CRCs of two byte ranges combine into the CRC of their concatenation without reading the bytes
// again. So ranges that arrive in any order are hashed while they are in the CPU cache. A CRC is
// the remainder of a polynomial over GF(2). Appending n bytes multiplies it by x^(8n) modulo the
// generator.

// Combinable reports whether Combine supports the algorithm.
func (a Algorithm) Combinable() bool { return algorithms[a].poly != 0 }

// Combine returns the checksum of first's bytes followed by second's, where second covers n bytes.
// Both are checksums of algorithm a, big-endian as returned by hash.Hash.Sum. It panics if the
// algorithm is not Combinable.
func (a Algorithm) Combine(first, second []byte, n int64) []byte {
	poly := algorithms[a].poly
	if poly == 0 {
		panic("backends: checksums of " + string(a) + " cannot be combined")
	}
	width := len(first) * 8
	sum := mulmod(toInt(first), shift(n, poly, width), poly, width) ^ toInt(second)
	out := make([]byte, len(first))
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = byte(sum)
		sum >>= 8
	}
	return out
}

func toInt(b []byte) (v uint64) {
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}

// shift returns x^(8n) modulo the generator, in reflected form: the highest bit is the coefficient
// of x^0.
func shift(n int64, poly uint64, width int) uint64 {
	one := uint64(1) << (width - 1)
	result, square := one, one>>8 // x^0, x^8
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			result = mulmod(result, square, poly, width)
		}
		square = mulmod(square, square, poly, width)
	}
	return result
}

// mulmod multiplies two polynomials modulo the generator.
func mulmod(a, b, poly uint64, width int) (product uint64) {
	for bit := uint64(1) << (width - 1); bit != 0; bit >>= 1 {
		if a&bit != 0 {
			product ^= b
		}
		if b&1 != 0 {
			b = b>>1 ^ poly
		} else {
			b >>= 1
		}
	}
	return product
}

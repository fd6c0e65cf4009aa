package plan

import (
	"fmt"
	"testing"

	"github.com/stager-dev/stager/backends"
)

// BenchmarkDigest measures the digest of a million objects in memory, which is what a [Digester] adds
// to the time of a listing.
func BenchmarkDigest(b *testing.B) {
	var list List
	for i := range 1_000_000 {
		list = append(list, backends.Object{
			Key: fmt.Sprintf("train/%04d/sample-%09d.jpg", i/10000, i), Size: int64(i),
			Version: backends.Version(fmt.Sprintf("%032x", uint64(i)*0x9e3779b97f4a7c15)),
		})
	}
	for b.Loop() {
		if _, err := Digest(Manifest{Objects: list}, OrderSpec{By: Shuffle, Seed: 7}, Shard{}); err != nil {
			b.Fatal(err)
		}
	}
}

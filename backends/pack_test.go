package backends

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPackedObjectsAreTheSame(t *testing.T) {
	object := rapid.Custom(func(t *rapid.T) Object {
		obj := Object{
			Key: rapid.StringMatching(`(a/|b){0,9}.*`).Draw(t, "key"), Size: rapid.Int64().Draw(t, "size"),
			Version: Version(rapid.String().Draw(t, "version")), Whole: rapid.Bool().Draw(t, "whole"),
			Sum: Checksum{Algorithm: rapid.SampledFrom([]Algorithm{"", MD5, CRC32C}).Draw(t, "algorithm"), Value: rapid.String().Draw(t, "sum")},
		}
		if rapid.Bool().Draw(t, "timed") {
			obj.ModTime = time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanos")).UTC()
		}
		return obj
	})
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(object).Draw(t, "objects")
		if got := slices.Collect(pack(want).all()); !slices.Equal(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

package format

import (
	"bytes"
	"path"
	"testing"
)

// fuzz tests one reader. It must not panic, and a Whole file must not be Whole without its last
// byte.
func fuzz(f *testing.F, ext, magic string) {
	for name, p := range samples(f) {
		if path.Ext(name) == ext {
			f.Add(p)
		}
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if !bytes.HasPrefix(p, []byte(magic)) {
			p = append([]byte(magic), p...)
		}
		whole, err := Judge("x"+ext, bytes.NewReader(p), int64(len(p)))
		if err != nil || whole.Verdict != Whole || len(p) == 0 {
			return
		}
		if cut, err := Judge("x"+ext, bytes.NewReader(p[:len(p)-1]), int64(len(p)-1)); err == nil && cut.Verdict == Whole && ext != ".json" {
			t.Errorf("%q is whole with and without its last byte", p)
		}
	})
}

func FuzzZip(f *testing.F)         { fuzz(f, ".pt", "PK\x03\x04") }
func FuzzSafetensors(f *testing.F) { fuzz(f, ".safetensors", "") }
func FuzzNPY(f *testing.F)         { fuzz(f, ".npy", "\x93NUMPY") }
func FuzzHDF5(f *testing.F)        { fuzz(f, ".h5", "\x89HDF\r\n\x1a\n") }
func FuzzParquet(f *testing.F)     { fuzz(f, ".parquet", "PAR1") }
func FuzzPickle(f *testing.F)      { fuzz(f, ".pkl", "\x80") }
func FuzzLegacy(f *testing.F)      { fuzz(f, ".pt", legacyMagic) }
func FuzzTable(f *testing.F)       { fuzz(f, ".index", "") }
func FuzzJSON(f *testing.F)        { fuzz(f, ".json", "{") }

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":120},"weight_map":{"x":"a.safetensors"}}`))
	f.Fuzz(func(t *testing.T, p []byte) {
		index, _, _ := ReadIndex(bytes.NewReader(p), int64(len(p))) // the reader cannot fail
		for _, shard := range index.Shards {
			if path.IsAbs(shard) || shard == ".." || len(shard) > 2 && shard[:3] == "../" {
				t.Errorf("%q names %q", p, shard)
			}
		}
		index.Judge(func(name string) (int64, bool) { return int64(len(name)), true })
	})
}

func FuzzMissingParts(f *testing.F) {
	f.Add("m-1-of-2.bin", "m-2-of-2.bin")
	f.Fuzz(func(_ *testing.T, a, b string) { MissingParts([]string{a, b}) })
}

package hf

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/conformance/hub"
)

// A Hub of directories, beside which benchmarks measure, has one repository for each.
func TestReadingHubOfDirectories(t *testing.T) {
	dir, want := t.TempDir(), map[string][]string{"one": {"large.bin"}, "many": {"below/it/small.bin", "small.bin"}}
	for i := range 1100 { // more than a page
		want["many"] = append(want["many"], fmt.Sprintf("x%04d", i))
	}
	sizes := map[string]int64{"large.bin": 2<<20 + 1, "small.bin": 700, "below/it/small.bin": 3}
	for name, keys := range want {
		for _, key := range keys {
			p := filepath.Join(dir, name, key)
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p, conformance.ContentsOf(key, sizes[key]).Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	h, err := hub.Serve(map[string]string{"one": filepath.Join(dir, "one"), "many": filepath.Join(dir, "many")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		store := fake{h}.open(t, "hf://org/"+name+"/")
		objects, keys := listing(t, store)
		if !slices.Equal(keys, want[name]) {
			t.Errorf("%s lists %d keys, want %d: %q", name, len(keys), len(want[name]), keys[:min(len(keys), 5)])
		}
		for _, obj := range objects {
			if obj.Size > 0 {
				wantReads(t, store, obj)
			}
		}
	}
}

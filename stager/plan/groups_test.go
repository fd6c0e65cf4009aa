package plan

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stager-dev/stager/backends"
)

func grouped(t rapid.TB, w Window, objects []backends.Object) Manifest {
	t.Helper()
	g := NewGroups(w, func(size int64) int64 { return max(1, (size+9)/10) * 10 }, 0)
	for _, obj := range objects {
		if err := g.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	return g.Manifest()
}

func keyed(keys ...string) (objects []backends.Object) {
	for i, key := range keys {
		objects = append(objects, backends.Object{Key: key, Size: int64(i), Version: backends.Version(fmt.Sprint("v", i))})
	}
	return objects
}

// reported describes the groups of a manifest as text.
func reported(m Manifest) (words []string) {
	for i, obj := range listOf(m) {
		line := fmt.Sprint(obj.Key, " ", obj.Size)
		for name, member := range m.Members[i].All() {
			line += fmt.Sprint(" ", name, "=", member.Key, ":", member.Size, ":", member.Version)
		}
		words = append(words, line)
	}
	return words
}

func TestGroups(t *testing.T) {
	objects := keyed("a/1", "a/b/1", "a/b/2", "a/c", "b/1", "top")
	for _, tt := range []struct {
		w    Window
		want []string
	}{
		{Window{Items: ItemsDirs}, []string{
			"/ 10 top=top:5:v5",
			"a 20 1=a/1:0:v0 c=a/c:3:v3",
			"a/b 20 1=a/b/1:1:v1 2=a/b/2:2:v2",
			"b 10 1=b/1:4:v4",
		}},
		{Window{Items: ItemsBundles, Bundle: 40}, []string{
			"bundle-000000 40 a/1=a/1:0:v0 a/b/1=a/b/1:1:v1 a/b/2=a/b/2:2:v2 a/c=a/c:3:v3",
			"bundle-000001 20 b/1=b/1:4:v4 top=top:5:v5",
		}},
	} {
		if got := reported(grouped(t, tt.w, objects)); !slices.Equal(got, tt.want) {
			t.Errorf("%s are %q, want %q", tt.w.Items, got, tt.want)
		}
	}
}

// A file that is larger than a bundle is a bundle by itself; the window reports whether it fits.
func TestBundleRespectsItsSize(t *testing.T) {
	objects := []backends.Object{{Key: "a", Size: 5}, {Key: "b", Size: 95}, {Key: "c", Size: 5}}
	m := grouped(t, Window{Items: ItemsBundles, Bundle: 50}, objects)
	if got := []int64{listOf(m)[0].Size, listOf(m)[1].Size, listOf(m)[2].Size}; !slices.Equal(got, []int64{10, 100, 10}) {
		t.Errorf("bundles take %v, want 10, 100 and 10", got)
	}
}

// Every object is in exactly one group, unchanged, and another version of any object makes another
// manifest.
func TestGroupsHaveEveryObjectOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		directories := rapid.SliceOfNDistinct(rapid.StringMatching(`([a-c]/){0,3}[d-z]{1,4}`), 1, 40, rapid.ID[string]).Draw(rt, "keys")
		slices.Sort(directories)
		var objects []backends.Object
		for _, key := range directories {
			objects = append(objects, backends.Object{
				Key: key, Size: int64(rapid.IntRange(0, 30).Draw(rt, "size")),
				Version: backends.Version(rapid.SampledFrom([]string{"", "v1", "0aFf", "0aff", "fff", `"0aff"`}).Draw(rt, "version")),
				Sum:     backends.Checksum{Algorithm: backends.CRC32C, Value: rapid.StringMatching(`[0-9a-f]{8}`).Draw(rt, "sum")},
			})
		}
		w := Window{Items: rapid.SampledFrom([]string{ItemsDirs, ItemsBundles}).Draw(rt, "items"), Bundle: 100}
		m := grouped(rt, w, objects)
		var got []backends.Object
		for _, group := range m.Members {
			for _, obj := range group.All() {
				got = append(got, obj)
			}
		}
		slices.SortFunc(got, func(a, b backends.Object) int {
			if a.Key < b.Key {
				return -1
			}
			return 1
		})
		if !slices.Equal(got, objects) {
			rt.Fatalf("got %v, want %v", got, objects)
		}
		spec := OrderSpec{By: ByName}
		was := digestOf(m, spec, Shard{})
		objects[rapid.IntRange(0, len(objects)-1).Draw(rt, "which")].Version = "v2"
		if digestOf(grouped(rt, w, objects), spec, Shard{}) == was {
			rt.Fatal("a manifest has the digest of one with another version of a file")
		}
	})
}

// BenchmarkGroups makes bundles of 16 MiB from a million files of 1 KiB, with versions and
// checksums as S3 reports them, and retains what a window retains.
func BenchmarkGroups(b *testing.B) {
	const files = 1_000_000
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		g := NewGroups(Window{Items: ItemsBundles, Bundle: 16 << 20}, func(int64) int64 { return 4096 }, 8192)
		for i := range files {
			err := g.Add(backends.Object{
				Key: fmt.Sprintf("train/%03d/%07d.jpg", i/1000, i), Size: 1024, Version: backends.Version(fmt.Sprintf("%032x", i)),
				Sum: backends.Checksum{Algorithm: backends.CRC64NVME, Value: fmt.Sprintf("%016x", i)},
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		m := g.Manifest()
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/files, "B/file")
		b.ReportMetric(float64(m.Len()), "items")
	}
}

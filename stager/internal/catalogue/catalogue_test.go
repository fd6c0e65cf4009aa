package catalogue

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stager-dev/stager/backends"
)

// written returns a catalogue of objects whose blocks stay in memory up to limit bytes, and the
// path of its file.
func written(t testing.TB, limit int, objects []backends.Object) (*Catalogue, string) {
	t.Helper()
	return writtenTo(t, limit, 1<<40, objects)
}

// writtenTo does this with a file that may take no more than room bytes.
func writtenTo(t testing.TB, limit int, room int64, objects []backends.Object) (*Catalogue, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "catalogue")
	w := NewWriter(func() (*os.File, int64, error) {
		file, err := os.Create(path)
		return file, room, err
	})
	w.limit = limit
	for _, obj := range objects {
		if err := w.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	c, err := w.Finish()
	if err = cmp.Or(err, w.Abort()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, path
}

// numbered returns n objects as S3 lists them.
func numbered(n int) (objects []backends.Object) {
	for i := range n {
		version := fmt.Sprintf("%032x", i*i)
		objects = append(objects, backends.Object{
			Key: fmt.Sprintf("train/%04d/sample-%09d.jpg", i/1000, i), Size: int64(i), Version: backends.Version(version),
			Sum: backends.Checksum{Algorithm: backends.MD5, Value: version}, ModTime: time.Unix(1_700_000_000, 0).UTC(),
		})
	}
	return objects
}

func TestCatalogueReturnsWhatWasAdded(t *testing.T) {
	texts := rapid.OneOf(rapid.String(), rapid.StringMatching(`([0-9a-f][0-9a-f])*`), rapid.StringMatching(`[0-9A-F]*`))
	some := rapid.Custom(func(t *rapid.T) backends.Object {
		obj := backends.Object{
			Key: rapid.StringMatching(`(a/|b){0,9}.*`).Draw(t, "key"), Size: rapid.Int64Min(0).Draw(t, "size"),
			Version: backends.Version(texts.Draw(t, "version")), Whole: rapid.Bool().Draw(t, "whole"),
			Sum: backends.Checksum{Algorithm: rapid.SampledFrom([]backends.Algorithm{"", backends.MD5, backends.SHA256}).Draw(t, "algorithm"), Value: texts.Draw(t, "sum")},
		}
		if rapid.Bool().Draw(t, "its MD5 is its version") {
			obj.Sum = backends.Checksum{Algorithm: backends.MD5, Value: string(obj.Version)}
		}
		if rapid.Bool().Draw(t, "timed") {
			obj.ModTime = time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanos")).UTC()
		}
		return obj
	})
	rapid.Check(t, func(rt *rapid.T) {
		want := rapid.SliceOfN(some, 0, 4*PerBlock).Draw(rt, "objects")
		c, _ := written(t, rapid.SampledFrom([]int{0, 1000, inMemory}).Draw(rt, "limit"), want)
		if c.Len() != len(want) {
			rt.Fatalf("got %d objects, want %d", c.Len(), len(want))
		}
		for range 3 * len(want) {
			i := rapid.IntRange(0, len(want)-1).Draw(rt, "i")
			if got, err := c.At(i); got != want[i] || err != nil {
				rt.Fatalf("object %d of %d: got %+v (%v), want %+v", i, len(want), got, err, want[i])
			}
		}
	})
}

// Lengths around the ends of blocks and of what is written at once, in memory and in a file.
func TestCatalogueHasEveryLength(t *testing.T) {
	all := numbered(20_000)
	for _, limit := range []int{0, inMemory} {
		for _, n := range []int{0, 1, PerBlock - 1, PerBlock, PerBlock + 1, 2 * PerBlock, 2*PerBlock + 1, len(all)} {
			c, _ := written(t, limit, all[:n])
			var got []backends.Object
			for i := range c.Len() {
				obj, err := c.At(i)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, obj)
			}
			if !slices.Equal(got, all[:n]) {
				t.Errorf("limit %d: %d objects are not what was added", limit, n)
			}
		}
	}
}

// A catalogue has at most 30 bytes for each object beside what its key has of its own.
func TestCatalogueIsSmall(t *testing.T) {
	all := numbered(100_000)
	c, _ := written(t, 0, all)
	size, err := c.OnDisk()
	if err != nil {
		t.Fatal(err)
	}
	if each := float64(size) / float64(len(all)); each > 38 {
		t.Errorf("an object takes %.1f bytes on disk, want 38 at most: 16 are its version", each)
	}
}

// When a window starts again, the files of the process before it may leave less room than a listing that
// has grown needs.
func TestCatalogueStaysWithinItsRoom(t *testing.T) {
	all := numbered(40_000)
	for _, room := range []int64{-1, 0, 4096, writeAtOnce - 1, writeAtOnce, writeAtOnce + 8192, 3 * writeAtOnce, 1 << 40} {
		c, _ := writtenTo(t, 0, room, all)
		if size, err := c.OnDisk(); size > max(room, 0) || err != nil {
			t.Errorf("room %d: the file takes %d bytes (%v)", room, size, err)
		}
		for i, want := range all {
			if got, err := c.At(i); got != want || err != nil {
				t.Fatalf("room %d: object %d is %+v (%v), want %+v", room, i, got, err, want)
			}
		}
	}
}

// Every damaged byte of a file is an error of the objects in its block, and of no other.
func TestCatalogueReportsDamage(t *testing.T) {
	all := numbered(3 * PerBlock)
	c, path := written(t, 0, all)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() // nothing depends on it
	put := func(at int, b byte) {
		t.Helper()
		if _, err := file.WriteAt([]byte{b}, int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	for at := range text {
		put(at, text[at]^0x10)
		c.recent = [decoded]block{}
		for number := range 3 {
			hit := c.starts[number] <= int64(at) && int64(at) < c.starts[number+1]
			got, err := c.At(number * PerBlock)
			if hit && !errors.Is(err, errDamaged) || !hit && (err != nil || got != all[number*PerBlock]) {
				t.Fatalf("byte %d: block %d gave %+v (%v), and is damaged: %v", at, number, got, err, hit)
			}
		}
		put(at, text[at])
	}
	if err := os.Truncate(path, int64(len(text))-1); err != nil {
		t.Fatal(err)
	}
	c.recent = [decoded]block{}
	_, err = c.At(c.Len() - 1)
	if err == nil || !strings.Contains(err.Error(), "restart stager") {
		t.Errorf("a file that is too short: got %v, want an error that says what to do", err)
	}
}

func TestWriterReportsAFullDisk(t *testing.T) {
	full := errors.New("no space left on device")
	w := NewWriter(func() (*os.File, int64, error) { return nil, 0, full })
	w.limit = 0
	var err error
	for _, obj := range numbered(2 * PerBlock) {
		if err = w.Add(obj); err != nil {
			break
		}
	}
	if !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
}

// FuzzDecode decodes blocks with a valid checksum, whatever is in them.
func FuzzDecode(f *testing.F) {
	block := make([]byte, sumLength)
	last := ""
	for _, obj := range numbered(3) {
		block, last = appendObject(block, last, obj), obj.Key
	}
	f.Add(block, 3)
	f.Add(block[:len(block)-1], 3)
	f.Add([]byte("\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), 1)
	f.Fuzz(func(t *testing.T, block []byte, n int) {
		if len(block) < sumLength || n < 0 || n > PerBlock {
			return
		}
		seal(block)
		objects, err := decode(block, n)
		if err != nil {
			return
		}
		again := make([]byte, sumLength)
		last := ""
		for _, obj := range objects {
			again, last = appendObject(again, last, obj), obj.Key
		}
		seal(again)
		got, err := decode(again, n)
		if err != nil || !slices.Equal(got, objects) {
			t.Fatalf("%+v became %+v (%v)", objects, got, err)
		}
	})
}

package pack

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/stager/plan"
)

func store(m *mem.Backend) *backends.Store {
	return backends.NewStore(m, "mem://files", backends.Options{RetryFor: time.Minute})
}

func openPacked(t testing.TB, m *mem.Backend, cfg Config) *Packed {
	t.Helper()
	cfg.Src = store(m)
	if cfg.Size == 0 {
		cfg.Size = 64 << 10
	}
	p, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// images returns samples of two files in directories, and some other files.
func images(n int) *mem.Backend {
	m := mem.New()
	for i := range n {
		m.Generate(fmt.Sprintf("%s/%03d.jpg", []string{"cat", "dog"}[i%2], i), int64(i*97%5000))
		m.Put(fmt.Sprintf("%s/%03d.cls", []string{"cat", "dog"}[i%2], i), []byte(fmt.Sprint(i%2)))
	}
	return m
}

// bytesOf reads all bytes of a shard.
func bytesOf(t testing.TB, p *Packed, obj backends.Object) []byte {
	t.Helper()
	into := make(at, obj.Size)
	if _, err := p.ReadRange(t.Context(), obj, 0, obj.Size, into, nil); err != nil {
		t.Fatalf("reading %s: %v", obj.Key, err)
	}
	return into
}

type at []byte

func (a at) WriteAt(p []byte, off int64) (int, error) { return copy(a[off:], p), nil }

func list(t testing.TB, p *Packed) []backends.Object {
	t.Helper()
	var all []backends.Object
	for obj, err := range p.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, obj)
	}
	return all
}

// members returns the files of an archive in order.
func members(t testing.TB, archive []byte) (names []string, contents map[string][]byte) {
	t.Helper()
	contents = make(map[string][]byte)
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if contents[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// Every file is packed once, completely, next to those of its sample. Shards do not exceed the
// requested size. The order is that of the listing, or one that depends only on the seed.
func TestPackPutsEachFileInOneShard(t *testing.T) {
	m := images(200)
	m.Generate("README", 77)
	m.Generate("large.bin", whole+12345) // larger than a shard, and than a file that is read whole
	seed := uint64(7)
	for _, shuffle := range []*uint64{nil, &seed} {
		p := openPacked(t, m, Config{Shuffle: shuffle, Prefix: "train-"})
		var names []string
		got := make(map[string][]byte)
		for i, obj := range list(t, p) {
			if want := fmt.Sprintf("train-%06d.tar", i); obj.Key != want {
				t.Fatalf("shard %d is %s, want %s", i, obj.Key, want)
			}
			in, contents := members(t, bytesOf(t, p, obj))
			if obj.Size > 64<<10 && len(in) > 1 {
				t.Errorf("%s has %d bytes and %d files, want at most 65,536 bytes", obj.Key, obj.Size, len(in))
			}
			names = append(names, in...)
			for name, c := range contents {
				got[name] = c
			}
		}
		keys := m.Keys()
		if sorted := slices.Sorted(slices.Values(names)); !slices.Equal(sorted, keys) {
			t.Fatalf("the shards have %d files, want the %d of the store, each once", len(names), len(keys))
		}
		if inOrder := slices.IsSorted(names); inOrder != (shuffle == nil) {
			t.Errorf("in the listing's order: %v, want %v", inOrder, shuffle == nil)
		}
		for _, key := range keys {
			if want, _ := m.Get(key); !bytes.Equal(got[key], want) {
				t.Errorf("%s has other bytes than its file", key)
			}
		}
		for i := 0; i+1 < len(names); i++ {
			if strings.HasSuffix(names[i], ".cls") && nameOf(names[i+1]) != nameOf(names[i]) {
				t.Errorf("%s is followed by %s, want the other file of the sample", names[i], names[i+1])
			}
		}
		if p.Samples() != 201 || p.Files() != 402 {
			t.Errorf("told are %d samples in %d files, want 201 in 402", p.Samples(), p.Files())
		}
	}
}

func TestPackKeepsSamplesTogether(t *testing.T) {
	for _, tt := range []struct{ keys, want string }{
		{"a.cls a.jpg b.jpg", "a: a.cls a.jpg; b: b.jpg"},
		{"a.cls a.d/x.jpg a.jpg", "a.d/x: a.d/x.jpg; a: a.cls a.jpg"},
		{"x/a.1.cls x/a.2.cls x/b", "x/a: x/a.1.cls x/a.2.cls; : x/b"},
		{"a a.jpg", ": a; a: a.jpg"},
		{".hidden a/.b.c", ": .hidden; : a/.b.c"},
		{"a-b.jpg a.jpg aa.jpg", "a-b: a-b.jpg; a: a.jpg; aa: aa.jpg"},
	} {
		var got []string
		for s, err := range samples(listed(strings.Fields(tt.keys)...)) {
			if err != nil {
				t.Fatal(err)
			}
			one := s.name + ":"
			for _, obj := range s.files.All() {
				one += " " + obj.Key
			}
			got = append(got, one)
		}
		if got := strings.Join(got, "; "); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.keys, got, tt.want)
		}
	}
}

func listed(keys ...string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		for _, key := range keys {
			if !yield(backends.Object{Key: key, Size: 1}, nil) {
				return
			}
		}
	}
}

// However a shard is divided into ranges, they are parts of the same bytes.
func TestShardRangesMatchTheWholeArchive(t *testing.T) {
	m := images(40)
	m.Generate("zebra/1.bin", whole+1)
	p := openPacked(t, m, Config{Size: 32 << 20})
	obj := list(t, p)[0]
	all := bytesOf(t, p, obj)
	rapid.Check(t, func(rt *rapid.T) {
		off := rapid.Int64Range(0, obj.Size).Draw(rt, "off")
		n := rapid.Int64Range(0, min(obj.Size-off, 20_000)).Draw(rt, "n")
		if rapid.Bool().Draw(rt, "to the end") {
			off = obj.Size - n
		}
		into := make([]byte, n)
		if _, err := p.ReadRange(t.Context(), obj, off, n, &shifted{into, off}, nil); err != nil {
			rt.Fatal(err)
		}
		if !bytes.Equal(into, all[off:off+n]) {
			rt.Fatalf("%d bytes from %d on are not those of the whole", n, off)
		}
	})
}

type shifted struct {
	bytes []byte
	start int64
}

func (s *shifted) WriteAt(p []byte, off int64) (int, error) {
	return copy(s.bytes[off-s.start:], p), nil
}

// The same files make the same shards. Another version of a file makes another version of its
// shard, and of no other shard.
func TestShardVersionDependsOnEveryFile(t *testing.T) {
	m := images(100)
	before, again := list(t, openPacked(t, m, Config{})), list(t, openPacked(t, m, Config{}))
	if !slices.Equal(before, again) {
		t.Error("two listings of the same files differ")
	}
	m.Put("cat/050.cls", []byte("9"))
	changed := 0
	for i, obj := range list(t, openPacked(t, m, Config{})) {
		if obj != before[i] {
			changed++
		}
	}
	if changed != 1 {
		t.Errorf("%d shards changed with one file, want 1", changed)
	}
}

// A file that is replaced after the listing is not packed, nor are bytes that do not match the
// store's checksum, for files of any size.
func TestPackRejectsFilesThatChangedSinceListing(t *testing.T) {
	for _, size := range []int64{1000, whole + 1000} {
		m := mem.New()
		m.Generate("a.jpg", size)
		p := openPacked(t, m, Config{Size: 32 << 20})
		obj := list(t, p)[0]
		m.Generate("a.jpg", size) // the same bytes, but another version
		if _, err := p.ReadRange(t.Context(), obj, 0, obj.Size, make(at, obj.Size), nil); backends.KindOf(err) != backends.Changed {
			t.Errorf("a file of %d bytes that was replaced: got %v, want kind Changed", size, err)
		}

		lying := backends.NewStore(liar{mem.NewWith(backends.Capabilities{Checksum: backends.CRC32C})}, "mem://files", backends.Options{RetryFor: time.Minute})
		if _, err := lying.Put(t.Context(), "a.jpg", conformance.ContentsOf("a", size), size, backends.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		p, err := Open(t.Context(), Config{Src: lying, Size: 32 << 20})
		if err != nil {
			t.Fatal(err)
		}
		obj = list(t, p)[0]
		if _, err := p.ReadRange(t.Context(), obj, 0, obj.Size, make(at, obj.Size), nil); backends.KindOf(err) != backends.Corrupt {
			t.Errorf("a file of %d bytes with another checksum: got %v, want kind Corrupt", size, err)
		}
	}
}

// liar reports a checksum that no object has.
type liar struct{ *mem.Backend }

var lie = backends.Checksum{Algorithm: backends.CRC32C, Value: "00000001"}

func (l liar) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		for obj, err := range l.Backend.List(ctx, prefix) {
			obj.Sum = lie
			if !yield(obj, err) {
				return
			}
		}
	}
}

// Packed files are a store that can be read like any other.
func TestPackedFilesAreAStore(t *testing.T) {
	p := openPacked(t, images(300), Config{})
	conformance.Inspect(t, func(*testing.T) *backends.Store { return p.Store }, list(t, p)[:3])
}

func TestReaderCloseEndsItsRequests(t *testing.T) {
	m := images(100)
	p := openPacked(t, m, Config{Size: 8 << 20})
	obj := list(t, p)[0]
	backend, _ := p.Backend()
	for range 20 {
		body, err := backend.OpenRange(t.Context(), obj, rand.Int64N(obj.Size), -1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := body.Read(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		body.Close()
		if _, err := body.Read(make([]byte, 100)); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("reading after Close: got %v, want %v", err, io.ErrClosedPipe)
		}
	}
}

// Package plan can read the index.
func TestIndexMatchesThatOfAPlan(t *testing.T) {
	p := openPacked(t, images(100), Config{})
	text, err := p.Index()
	if err != nil {
		t.Fatal(err)
	}
	var index plan.Index
	if err := index.ReadLines(bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	objects := plan.List(list(t, p))
	m := plan.Manifest{Objects: objects}
	if err := m.Count(&index, true); err != nil {
		t.Fatal(err)
	}
	of := make(map[string]int)
	for _, c := range m.Counts {
		for _, class := range c.Classes {
			of[m.Classes[class.Class]] += int(class.Samples)
		}
	}
	if of["cat"] != 50 || of["dog"] != 50 || len(of) != 2 {
		t.Errorf("the index tells %v, want 50 cats and 50 dogs", of)
	}
	objects[1].Size++
	if err := index.ReadLines(bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if err := m.Count(&index, true); err == nil || !strings.Contains(err.Error(), "create them again") {
		t.Errorf("an index of other shards: got %v, want an error", err)
	}
}

func TestPackRejectsInvalidInput(t *testing.T) {
	for _, tt := range []struct {
		what string
		m    *mem.Backend
		cfg  Config
		kind backends.Kind
	}{
		{"nothing", mem.New(), Config{Size: 1 << 20}, backends.NotExist},
		{"no room for a file", images(1), Config{Size: 1024}, backends.Invalid},
	} {
		tt.cfg.Src = store(tt.m)
		if _, err := Open(t.Context(), tt.cfg); backends.KindOf(err) != tt.kind {
			t.Errorf("%s: got %v, want kind %s", tt.what, err, tt.kind)
		}
	}
}

func TestShardsOfAnotherPackingAreRecognized(t *testing.T) {
	p := openPacked(t, images(100), Config{})
	n := p.Shards()
	for key, want := range map[string]bool{
		keyOf("shard-", n-1): false, keyOf("shard-", n): true, "shard-000.tar": false, "shard-000099.tar.x": false, "other-000099.tar": false, IndexKey: false,
	} {
		if got := p.Stale(key); got != want {
			t.Errorf("%s is of another packing: %v, want %v", key, got, want)
		}
	}
}

package pack

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/stager/transfer"
)

// packing runs one worker at a time.
type packing struct {
	src, dst  *mem.Backend
	overwrite bool
	cfg       Config
}

func newPacking(n int) *packing { return &packing{src: images(n), dst: mem.New()} }

func (p *packing) publisher(t *testing.T) *Publisher {
	t.Helper()
	dst := backends.NewStore(p.dst, "mem://dst", backends.Options{RetryFor: time.Minute})
	return &Publisher{Packed: openPacked(t, p.src, p.cfg), Dst: dst, Overwrite: p.overwrite, Log: slog.New(slog.DiscardHandler)}
}

func (p *packing) work(t *testing.T, index, count int) error {
	t.Helper()
	pub := p.publisher(t)
	if err := pub.Check(t.Context()); err != nil {
		return err
	}
	l, err := pub.Packed.Layout()
	if err != nil {
		t.Fatal(err)
	}
	_, err = transfer.Copy(t.Context(), transfer.Config{
		Src: pub.Packed.Store, Dst: pub.Dst, Overwrite: p.overwrite, Listing: plan.Listing{Shard: plan.Shard{Index: index, Count: count}},
		Shared: &transfer.Shared{Layout: l, Begin: pub.Begin, End: pub.End},
	})
	return err
}

func (p *packing) does(t *testing.T, index, count int) {
	t.Helper()
	if err := p.work(t, index, count); err != nil {
		t.Fatalf("worker %d of %d: %v", index, count, err)
	}
}

// indexed checks whether there is an index, and that it is the packing's.
func (p *packing) indexed(t *testing.T, want bool) {
	t.Helper()
	got, ok := p.dst.Get(IndexKey)
	if ok != want {
		t.Fatalf("there is an index: got %v, want %v", ok, want)
	}
	if text, err := openPacked(t, p.src, p.cfg).Index(); ok && (err != nil || string(text) != string(got)) {
		t.Errorf("the index is\n%s, want\n%s (%v)", got, text, err)
	}
}

func (p *packing) refuses(t *testing.T, index, count int, want string) {
	t.Helper()
	if err := p.work(t, index, count); backends.KindOf(err) != backends.Exist || !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("worker %d of %d: got %v, want kind exist with %q", index, count, err, want)
	}
}

func TestPackByWorkersPublishesTheIndexOnce(t *testing.T) {
	p := newPacking(200)
	for i := range 3 {
		p.indexed(t, false)
		p.does(t, i, 3)
	}
	p.indexed(t, true)
	if err := p.publisher(t).Verify(t.Context()); err != nil {
		t.Errorf("Verify: got %v, want no error", err)
	}
	p.does(t, 1, 3) // run again
	p.indexed(t, true)
}

// In each of these cases both workers exited with success, and the index listed shards with
// duplicate or missing samples.
func TestPackRefusesAWorkerThatPacksOtherwise(t *testing.T) {
	seeds := [2]uint64{1, 2}
	for _, tt := range []struct {
		what   string
		change func(*packing)
		want   string
	}{
		{"a file more", func(p *packing) { p.src.Put("bird/000.jpg", make([]byte, 9000)) }, "the source has changed: it has 401 objects, and had 400"},
		{"a file less", func(p *packing) { _ = p.src.Delete(t.Context(), "cat/000.cls") }, "it has 399 objects, and had 400"},
		{"another file", func(p *packing) { p.src.Put("cat/000.cls", []byte("1")) }, "some of its 400 objects were replaced"},
		{"another seed", func(p *packing) { p.cfg.Shuffle = &seeds[1] }, "--shuffle is 2 here, but 1 in the record"},
		{"no seed", func(p *packing) { p.cfg.Shuffle = nil }, "--shuffle is not given here, but 1 in the record"},
		{"another size", func(p *packing) { p.cfg.Size = 60 << 10 }, "--shard-size is 61440 here, but 65536 in the record"},
		{"a filter", func(p *packing) { p.cfg.Listing.Filter.Exclude = []string{"README"} }, `--exclude is "README" here, but not given in the record`},
	} {
		t.Run(tt.what, func(t *testing.T) {
			p := newPacking(200)
			p.overwrite = true // replaces shards, but not the agreement with other workers
			p.cfg.Shuffle = &seeds[0]
			p.does(t, 0, 3)
			tt.change(p)
			p.refuses(t, 1, 3, tt.want)
			p.indexed(t, false)
		})
	}
	p := newPacking(200)
	p.does(t, 0, 3)
	p.refuses(t, 1, 2, "this worker is one of 2, but the layout has 3")
}

// An index.jsonl of another program was silently replaced.
func TestPackKeepsAForeignIndex(t *testing.T) {
	p := newPacking(100)
	p.dst.Put(IndexKey, []byte("precious"))
	p.refuses(t, 0, 1, "stager did not write it here")
	if got, _ := p.dst.Get(IndexKey); string(got) != "precious" {
		t.Errorf("the index is %q, want it as it was", got)
	}
	p.overwrite = true
	p.does(t, 0, 1)
	p.indexed(t, true)
}

// A directory that had become smaller could not be packed again, not even with --overwrite: shards
// of the older packing were in the way.
func TestPackOfFewerFilesRemovesShards(t *testing.T) {
	p := newPacking(200)
	p.does(t, 0, 1)
	before := len(p.dst.Keys())
	for i := range 100 {
		for _, ext := range []string{"jpg", "cls"} {
			_ = p.src.Delete(t.Context(), fmt.Sprintf("%s/%03d.%s", []string{"cat", "dog"}[i%2], i, ext))
		}
	}
	p.refuses(t, 0, 1, "remove old shards with --overwrite")
	p.overwrite = true
	p.does(t, 0, 1)
	p.indexed(t, true)
	if after := len(p.dst.Keys()); after >= before {
		t.Errorf("the destination has %d objects, want fewer than %d", after, before)
	}
	for _, key := range p.dst.Keys() {
		if p.publisher(t).Packed.Stale(key) {
			t.Errorf("%s is a shard of the older packing", key)
		}
	}
}

// While changed files are being packed, no index describes shards that were removed.
func TestPackRemovesItsIndexBeforeItReplacesShards(t *testing.T) {
	p := newPacking(200)
	for i := range 2 {
		p.does(t, i, 2)
	}
	p.src.Put("dog/zzz.jpg", make([]byte, 50_000))
	p.overwrite = true
	p.does(t, 1, 2)
	p.indexed(t, false)
	p.does(t, 0, 2)
	p.indexed(t, true)
}

func TestPackVerifyComparesTheIndex(t *testing.T) {
	p := newPacking(100)
	p.does(t, 0, 1)
	p.dst.Put(IndexKey, []byte("{}\n"))
	if err := p.publisher(t).Verify(t.Context()); backends.KindOf(err) != backends.Corrupt {
		t.Errorf("another index: got %v, want kind corrupt", err)
	}
	_ = p.dst.Delete(t.Context(), IndexKey)
	if err := p.publisher(t).Verify(t.Context()); backends.KindOf(err) != backends.Changed {
		t.Errorf("no index: got %v, want kind changed", err)
	}
}

// WebDataset treats 1.jpg and 1.JPG as the same field of a sample, and stops at the shard.
func TestPackRefusesExtensionsThatDifferInCase(t *testing.T) {
	for _, tt := range []struct {
		keys    string
		refused bool
	}{
		{"a/1.JPG a/1.jpg", true},
		{"a/1.cls a/1.tar.GZ a/1.tar.gz", true},
		{"a/1.JPG a/2.jpg", false},
		{"A/1.jpg a/1.jpg", false},
		{"README readme", false},
	} {
		m := mem.New()
		for _, key := range strings.Fields(tt.keys) {
			m.Put(key, []byte("x"))
		}
		_, err := Open(t.Context(), Config{Src: store(m), Size: 64 << 10})
		if got := backends.KindOf(err) == backends.Invalid && strings.Contains(fmt.Sprint(err), "WebDataset rejects"); got != tt.refused {
			t.Errorf("%s: got %v, want a refusal: %v", tt.keys, err, tt.refused)
		}
	}
}

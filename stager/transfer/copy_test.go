package transfer

import (
	"bytes"
	"context"
	"crypto/md5" // of an ETag
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/stager/plan"
)

// side is a store in memory with scripted faults.
type side struct {
	*mem.Backend
	faults conformance.Faults
	store  *backends.Store
}

func newSide(name string, sum backends.Algorithm) *side {
	return wrapped(name, mem.NewWith(backends.Capabilities{Parallelism: 4, Checksum: sum}), func(b backends.Backend) backends.Backend { return b })
}

func wrapped(name string, b *mem.Backend, wrap func(backends.Backend) backends.Backend) *side {
	s := &side{Backend: b}
	s.store = backends.NewStore(s.faults.Wrap(wrap(b)), "mem://"+name, backends.Options{RetryFor: time.Minute})
	return s
}

// data returns the keys that are not records.
func (s *side) data() []string {
	return slices.DeleteFunc(s.Keys(), func(key string) bool { return strings.HasPrefix(key, plan.CopyRecords) })
}

// sizes are sizes around the limits at which objects are cut.
var sizes = []int64{0, 1, minBuffer, piece + 1, maxBlock, maxBlock + 1, 20 << 20}

func fill(s *side) {
	for i, size := range sizes {
		s.Generate(fmt.Sprintf("train/%d.tar", i), size)
	}
}

// equal checks that the destination has everything of the source, byte for byte.
func equal(t *testing.T, src, dst *side) {
	t.Helper()
	if got, want := dst.data(), src.data(); !slices.Equal(got, want) {
		t.Fatalf("the destination has %q, want %q", got, want)
	}
	for _, key := range src.data() {
		got, _ := dst.Get(key)
		want, _ := src.Get(key)
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs", key)
		}
	}
	if n := dst.Writers(); n != 0 {
		t.Errorf("%d writers have no end, want 0", n)
	}
}

func run1(t *testing.T, cfg Config) Summary {
	t.Helper()
	s, err := Copy(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCopyBetweenStores(t *testing.T) {
	for _, sums := range [][2]backends.Algorithm{
		{backends.CRC64NVME, backends.CRC64NVME}, {backends.CRC64NVME, backends.CRC64ECMA}, {"", ""}, {backends.MD5, ""}, {"", backends.SHA256},
	} {
		t.Run(fmt.Sprintf("%s to %s", sums[0], sums[1]), func(t *testing.T) {
			src, dst := newSide("src", sums[0]), newSide("dst", sums[1])
			fill(src)
			cfg := Config{Src: src.store, Dst: dst.store}
			s := run1(t, cfg)
			equal(t, src, dst)
			if s.CopiedFiles != len(sizes) || s.ThereFiles != 0 {
				t.Errorf("copied %d, there %d, want %d and 0", s.CopiedFiles, s.ThereFiles, len(sizes))
			}
			// A second run lists, and transfers no byte.
			reads, writes := len(src.faults.Calls(conformance.Read)), len(dst.faults.Calls(conformance.Create))
			s = run1(t, cfg)
			if s.ThereFiles != len(sizes) || s.CopiedFiles != 0 {
				t.Errorf("the second run: copied %d, there %d, want 0 and %d", s.CopiedFiles, s.ThereFiles, len(sizes))
			}
			if got := len(src.faults.Calls(conformance.Read)); got != reads {
				t.Errorf("the second run read %d times, want 0", got-reads)
			}
			if got := len(dst.faults.Calls(conformance.Create)); got != writes {
				t.Errorf("the second run wrote %d times, want 0", got-writes)
			}
			if s, err := Verify(t.Context(), cfg, func(key, what string) { t.Errorf("%s: %s", key, what) }); err != nil || s.Files != len(sizes) {
				t.Errorf("Verify = %d files, %v, want %d and no error", s.Files, err, len(sizes))
			}
		})
	}
}

// Without the record, existing objects are read, and not written again.
func TestRecordIsAHint(t *testing.T) {
	src, dst := newSide("src", ""), newSide("dst", "")
	fill(src)
	cfg := Config{Src: src.store, Dst: dst.store}
	run1(t, cfg)
	for _, key := range dst.Keys() {
		if strings.HasPrefix(key, plan.CopyRecords) {
			if err := dst.Backend.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	changed, _ := dst.Get("train/3.tar")
	s := run1(t, cfg)
	if s.ThereFiles != len(sizes) || s.CopiedFiles != 0 {
		t.Errorf("copied %d, there %d, want 0 and %d", s.CopiedFiles, s.ThereFiles, len(sizes))
	}
	// With the same size and other bytes only reading shows the difference. Nothing is replaced.
	changed[len(changed)-1] ^= 1
	dst.Put("train/3.tar", changed)
	_, err := Copy(t.Context(), cfg)
	if backends.KindOf(err) != backends.Exist || !strings.Contains(err.Error(), "train/3.tar") {
		t.Errorf("over other bytes: %v, want kind exist that names the key", err)
	}
	if now, _ := dst.Get("train/3.tar"); !bytes.Equal(now, changed) {
		t.Error("what was there was replaced without --overwrite")
	}
	cfg.Overwrite = true
	if s := run1(t, cfg); s.CopiedFiles != 1 {
		t.Errorf("with Overwrite %d were copied, want 1", s.CopiedFiles)
	}
	equal(t, src, dst)
	cfg.Overwrite, cfg.Force = false, true
	if s := run1(t, cfg); s.CopiedFiles != len(sizes) {
		t.Errorf("with Force %d were copied, want %d", s.CopiedFiles, len(sizes))
	}
}

func TestCopyRejectsDifferingObjectsBeforeTheFirstByte(t *testing.T) {
	src, dst := newSide("src", backends.CRC64NVME), newSide("dst", backends.CRC64NVME)
	fill(src)
	dst.Put("train/5.tar", []byte("mine"))
	_, err := Copy(t.Context(), Config{Src: src.store, Dst: dst.store})
	if backends.KindOf(err) != backends.Exist || !strings.Contains(err.Error(), `"train/5.tar"`) {
		t.Errorf("got %v, want kind exist that names the key", err)
	}
	if got := dst.Keys(); len(got) != 1 {
		t.Errorf("the destination has %q, want what was there alone", got)
	}
}

func TestPartitionsCoverTheWhole(t *testing.T) {
	src, dst := newSide("src", ""), newSide("dst", "")
	fill(src)
	total := 0
	for i := range 3 {
		total += run1(t, Config{Src: src.store, Dst: dst.store, Listing: plan.Listing{Shard: plan.Shard{Index: i, Count: 3}}}).CopiedFiles
		var missing []string
		_, err := Verify(t.Context(), Config{Src: src.store, Dst: dst.store}, func(key, _ string) { missing = append(missing, key) })
		if want := len(sizes) - total; len(missing) != want || (err == nil) != (want == 0) || err != nil && backends.KindOf(err) != backends.Changed {
			t.Errorf("after %d shards Verify finds %d missing and says %v, want %d", i+1, len(missing), err, want)
		}
	}
	equal(t, src, dst)
	if s := run1(t, Config{Src: src.store, Dst: dst.store}); s.ThereFiles != len(sizes) || total != len(sizes) {
		t.Errorf("3 shards copied %d, and the whole finds %d, want %d", total, s.ThereFiles, len(sizes))
	}
	if reads := src.faults.Calls(conformance.Read); slices.ContainsFunc(reads, func(c conformance.Call) bool { return c.N < 0 }) {
		t.Errorf("a read has no length: %v", reads)
	}
}

func TestCopySurvivesFaults(t *testing.T) {
	src, dst := newSide("src", backends.CRC64NVME), newSide("dst", backends.CRC64ECMA)
	fill(src)
	src.faults.Add(conformance.List, conformance.Cut(2)).
		Add(conformance.Read, conformance.Cut(1000), conformance.Fail(backends.Throttled), conformance.Pass(), conformance.Cut(1<<20))
	dst.faults.Add(conformance.Write, conformance.Fail(backends.Unavailable), conformance.Pass(), conformance.Fail(backends.Throttled)).
		Add(conformance.Commit, conformance.Lost(backends.Unavailable), conformance.Fail(backends.Unavailable))
	run1(t, Config{Src: src.store, Dst: dst.store})
	equal(t, src, dst)
	if left := src.faults.Left() + dst.faults.Left(); left != 0 {
		t.Errorf("%d faults did not happen, want 0", left)
	}
}

func TestCopyResumesAfterKill(t *testing.T) {
	src, dst := newSide("src", ""), newSide("dst", "")
	fill(src)
	ctx, kill := context.WithCancel(t.Context())
	dst.faults.AddFor(conformance.Write, "train/5.tar", conformance.FailWith(context.Canceled))
	src.faults.AddFor(conformance.Read, "train/5.tar", conformance.Meanwhile(100, kill))
	_, err := Copy(ctx, Config{Src: src.store, Dst: dst.store})
	if backends.KindOf(err) != backends.Canceled {
		t.Fatalf("got %v, want kind canceled", err)
	}
	if n := dst.Writers(); n != 0 {
		t.Errorf("%d writers have no end, want 0", n)
	}
	if _, ok := dst.Get("train/5.tar"); ok {
		t.Error("an object is visible that was not whole")
	}
	dst.faults = conformance.Faults{}
	s := run1(t, Config{Src: src.store, Dst: dst.store})
	equal(t, src, dst)
	if s.ThereFiles+s.CopiedFiles != len(sizes) {
		t.Errorf("there %d and copied %d, want %d together", s.ThereFiles, s.CopiedFiles, len(sizes))
	}
}

// The object is replaced during its first read, its second, and so on. Reads that began before have the
// old version, so a copy that reads nothing afterwards is one of the old version.
func TestCopyNeverMixesVersions(t *testing.T) {
	before, after := bytes.Repeat([]byte("old "), 5<<20), bytes.Repeat([]byte("new "), 5<<20)
	for _, parallel := range []int{1, 4} {
		side := func(name string) *side {
			b := mem.NewWith(backends.Capabilities{Parallelism: parallel})
			return wrapped(name, b, func(b backends.Backend) backends.Backend { return b })
		}
		src, dst := side("src"), side("dst")
		src.Put("a", before)
		run1(t, Config{Src: src.store, Dst: dst.store})
		reads := len(src.faults.Calls(conformance.Read))
		if reads < 3 {
			t.Fatalf("%d reads, want 3 at least", reads)
		}
		for n := range reads {
			src, dst := side("src"), side("dst")
			src.Put("a", before)
			for range n {
				src.faults.Add(conformance.Read, conformance.Pass())
			}
			src.faults.Add(conformance.Read, conformance.Meanwhile(10, func() { src.Put("a", after) }))
			_, err := Copy(t.Context(), Config{Src: src.store, Dst: dst.store})
			got, _ := dst.Get("a")
			switch later := parallel == 1 && n < reads-1; {
			case err == nil && (later || !bytes.Equal(got, before)):
				t.Errorf("%d at once, replaced in read %d of %d: no error, the old version: %t", parallel, n+1, reads, bytes.Equal(got, before))
			case err != nil && (backends.KindOf(err) != backends.Changed || !strings.Contains(err.Error(), "run the command again")):
				t.Errorf("%d at once, replaced in read %d: got %v, want kind changed with what to do", parallel, n+1, err)
			case err != nil && len(dst.data()) != 0:
				t.Errorf("%d at once, replaced in read %d: the destination has %q, want nothing", parallel, n+1, dst.data())
			}
		}
	}
}

// A copy of a copy transfers the data, but not the records.
func TestCopySkipsRecords(t *testing.T) {
	src, mid, dst := newSide("src", ""), newSide("mid", ""), newSide("dst", "")
	src.Generate("a", 1000)
	run1(t, Config{Src: src.store, Dst: mid.store})
	if len(mid.Keys()) != 2 {
		t.Fatalf("the first copy holds %q, want an object and a record", mid.Keys())
	}
	if s := run1(t, Config{Src: mid.store, Dst: dst.store}); s.Files != 1 {
		t.Errorf("the second copy brought %d files, want 1", s.Files)
	}
}

// turning is a backend that flips a bit of what is read.
type turning struct {
	*mem.Backend
	mu    sync.Mutex
	times int
}

func (c *turning) take() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times--
	return c.times >= 0
}

func (c *turning) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	body, err := c.Backend.OpenRange(ctx, obj, off, n)
	if err == nil && off == 0 && c.take() {
		return &turned{ReadCloser: body, sum: body.(backends.ChecksumReader).ObjectChecksum()}, nil
	}
	return body, err
}

type turned struct {
	io.ReadCloser
	sum  backends.Checksum
	done bool
}

func (b *turned) ObjectChecksum() backends.Checksum { return b.sum }

func (b *turned) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 && !b.done {
		p[0], b.done = p[0]^1, true
	}
	return n, err
}

func TestCopyNeverPublishesFlippedBits(t *testing.T) {
	for _, size := range []int64{1000, 20 << 20} {
		for _, sum := range []backends.Algorithm{backends.CRC32C, backends.MD5} {
			for times, want := range map[int]backends.Kind{1: backends.Unknown, 100: backends.Corrupt} {
				b := mem.NewWith(backends.Capabilities{Parallelism: 4, Checksum: sum})
				src := wrapped("src", b, func(backends.Backend) backends.Backend { return &turning{Backend: b, times: times} })
				dst := newSide("dst", "")
				src.Generate("a", size)
				_, err := Copy(t.Context(), Config{Src: src.store, Dst: dst.store})
				if want == backends.Unknown {
					if err != nil {
						t.Errorf("%d bytes by %s, one bit turned once: %v, want none", size, sum, err)
					} else {
						equal(t, src, dst)
					}
					continue
				}
				if backends.KindOf(err) != want || len(dst.data()) != 0 {
					t.Errorf("%d bytes by %s, always turned: %v and %q at the destination, want kind %v and nothing", size, sum, err, dst.data(), want)
				}
			}
		}
	}
}

// lying reports the checksum of other bytes for what was written.
type lying struct{ backends.Backend }

func (l lying) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	w, err := l.Backend.Create(ctx, key, opts)
	return &lyingWriter{w}, err
}

type lyingWriter struct{ backends.Writer }

func (w *lyingWriter) Commit(ctx context.Context) (backends.Object, error) {
	obj, err := w.Writer.Commit(ctx)
	sum := md5.Sum([]byte(obj.Key))
	obj.Sum = backends.Checksum{Algorithm: backends.MD5, Value: hex.EncodeToString(sum[:])}
	return obj, err
}

func TestCopyComparesChecksumOfDestination(t *testing.T) {
	src, b := newSide("src", ""), mem.New()
	dst := wrapped("dst", b, func(b backends.Backend) backends.Backend { return lying{struct{ backends.Backend }{b}} })
	src.Generate("a", 1000)
	_, err := Copy(t.Context(), Config{Src: src.store, Dst: dst.store})
	if backends.KindOf(err) != backends.Corrupt {
		t.Errorf("got %v, want kind corrupt", err)
	}
	if got := dst.data(); len(got) != 0 {
		t.Errorf("the destination keeps %q, want nothing that is wrong", got)
	}
}

func TestCopyDryRunWritesNothing(t *testing.T) {
	src, dst := newSide("src", ""), newSide("dst", "")
	fill(src)
	s := run1(t, Config{Src: src.store, Dst: dst.store, DryRun: true})
	if s.CopiedFiles != len(sizes) || len(dst.Keys()) != 0 {
		t.Errorf("%d would be copied and %d were, want %d and 0", s.CopiedFiles, len(dst.Keys()), len(sizes))
	}
}

func TestVerifyReportsDifferences(t *testing.T) {
	src, dst := newSide("src", backends.CRC64NVME), newSide("dst", backends.CRC64NVME)
	src.Generate("a", 1000)
	src.Generate("b", 1000)
	src.Generate("c", 1000)
	dst.Put("b", make([]byte, 1000))
	dst.Put("c", make([]byte, 999))
	found := make(map[string]string)
	_, err := Verify(t.Context(), Config{Src: src.store, Dst: dst.store}, func(key, what string) { found[key] = what })
	want := map[string]string{"a": "missing", "b": "differs: its checksum", "c": "differs: 1000 bytes at the source, 999 at the destination"}
	if fmt.Sprint(found) != fmt.Sprint(want) || backends.KindOf(err) != backends.Corrupt {
		t.Errorf("Verify found %v and says %v, want %v and kind corrupt", found, err, want)
	}
	if n := len(src.faults.Calls(conformance.Read)); n != 0 {
		t.Errorf("Verify read %d times, want 0", n)
	}
}

// A destination with other bytes of the same size, whose store has no checksums, was "verified" by
// its size, with exit code 0.
func TestVerifyReadsWhereNothingElseDecides(t *testing.T) {
	src, dst := newSide("src", ""), newSide("dst", "")
	src.Generate("a", 1000)
	src.Generate("b", 9<<20)
	dst.Put("a", make([]byte, 1000))
	same, _ := src.Get("b")
	dst.Put("b", same)
	found := make(map[string]string)
	s, err := Verify(t.Context(), Config{Src: src.store, Dst: dst.store}, func(key, what string) { found[key] = what })
	want := map[string]string{"a": "differs: its bytes"}
	if fmt.Sprint(found) != fmt.Sprint(want) || backends.KindOf(err) != backends.Corrupt {
		t.Errorf("Verify found %v and says %v, want %v and kind corrupt", found, err, want)
	}
	if s.Verified["bytes"] != 1 || s.Verified["size"] != 0 {
		t.Errorf("verified %v, want 1 by bytes", s.Verified)
	}
}

// A fixed number of buffers suffices for more readers than there are buffers.
func TestBlockCacheIsReadInAnyOrder(t *testing.T) {
	src := newSide("src", backends.CRC64NVME)
	obj := src.Generate("a", 10<<20+7)
	c := newBlockCache(t.Context(), src.store, obj, 1<<20, borrow(2, 1<<20), []backends.Algorithm{backends.CRC64NVME})
	defer c.close()
	want, _ := src.Get("a")
	var wg sync.WaitGroup
	for off := int64(0); off < obj.Size; off += 700_001 {
		wg.Go(func() {
			got := make([]byte, min(700_001, obj.Size-off))
			if _, err := c.ReadAt(got, off); err != nil || !bytes.Equal(got, want[off:off+int64(len(got))]) {
				t.Errorf("%d bytes at %d: %v, or they differ", len(got), off, err)
			}
		})
	}
	wg.Wait()
	if got, ok := c.sum(backends.CRC64NVME); !ok || got != obj.Sum {
		t.Errorf("sum = %v, %v, want %v", got, ok, obj.Sum)
	}
}

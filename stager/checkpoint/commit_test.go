package checkpoint

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
)

func goodCommit() Commit {
	return Commit{
		APIVersion: apiVersion, Kind: commitKind, Step: 12000, Nodes: 1, Data: "data/0123456789abcdef", Bytes: 3,
		Files: []File{{Path: "a/b", Size: 3, Mode: 0o644, Digest: "crc64nvme:0000000000000000"}, {Path: "c", Digest: "crc64nvme:0000000000000000"}},
	}
}

func TestDecodeCommitRefuses(t *testing.T) {
	text, err := encode(goodCommit())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeCommit(text); err != nil {
		t.Fatalf("a good one: %v", err)
	}
	for name, spoil := range map[string]func(*Commit){
		"another version":    func(c *Commit) { c.APIVersion = "stager.dev/v2" },
		"no nodes":           func(c *Commit) { c.Nodes = 0 },
		"another's node":     func(c *Commit) { c.Files[1].Node = 1 },
		"bytes elsewhere":    func(c *Commit) { c.Files[1].At = "step-00000001/data/../../other" },
		"bytes in COMMIT":    func(c *Commit) { c.Files[1].At = "step-00000001/COMMIT.json" },
		"negative step":      func(c *Commit) { c.Step = -1 },
		"no files":           func(c *Commit) { c.Files, c.Bytes = nil, 0 },
		"wrong total":        func(c *Commit) { c.Bytes = 4 },
		"negative size":      func(c *Commit) { c.Files[1].Size = -1; c.Bytes = 2 },
		"overflow":           func(c *Commit) { c.Files[0].Size, c.Files[1].Size = 1<<62, 1<<62; c.Bytes = -1 << 63 },
		"no digest":          func(c *Commit) { c.Files[0].Digest = "" },
		"unknown digest":     func(c *Commit) { c.Files[0].Digest = "rot13:00" },
		"data elsewhere":     func(c *Commit) { c.Data = "data/../../other" },
		"twice":              func(c *Commit) { c.Files[1].Path = "a/b" },
		"file and directory": func(c *Commit) { c.Files[1].Path = "a" },
	} {
		c := goodCommit()
		spoil(&c)
		text, err := encode(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeCommit(text); err == nil {
			t.Errorf("%s: decoded", name)
		}
	}
	for _, p := range []string{
		"", ".", "..", "../x", "a/../../x", "/etc/passwd", "a//b", "a/./b", "a/", "a\x00b", "\xff",
		".stager/x", ".stager-restore/x", restored, markerName, strings.Repeat("x", 256), strings.Repeat("x/", 3000) + "x",
	} {
		if err := checkPath(p); err == nil {
			t.Errorf("the path %.40q is taken", p)
		}
	}
	for _, text := range []string{"", "{}", "null", string(text) + "{}", strings.Replace(string(text), `"kind"`, `"sort"`, 1)} {
		if _, err := DecodeCommit([]byte(text)); err == nil {
			t.Errorf("decoded %.60q", text)
		}
	}
}

// Regression: a COMMIT.json with one additional field was treated as corrupt (exit code 76), and
// retention removed its step.
func TestCommitOfLaterVersion(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		u := newUploader(t, t.TempDir(), b, func(c *Config) { c.Keep.Last = 1 })
		write(t, filepath.Join(u.cfg.Dir, "step-1"), model("1"))
		settled(t, u)
		key := stepDir(1, 0) + "/" + commitKey
		text, _ := b.Get(key)
		add := func(field string) { b.Put(key, []byte(strings.Replace(string(text), "{", "{"+field+",", 1))) }
		add(`"later": {"x": 1}`)
		if r, _ := restoreNewest(t, b); r.Step != 1 {
			t.Errorf("with an unknown field: restored step %d, want 1", r.Step)
		}
		add(`"requires": ["striping"]`)
		_, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: filepath.Join(t.TempDir(), "x"), Step: Newest})
		if got := backends.KindOf(err); got != backends.Unsupported {
			t.Errorf("with an unknown feature: got %v (%v), want kind Unsupported", got, err)
		}
		for _, damage := range []string{`"requires": ["striping"]`, `"step": "one"`} {
			add(damage)
			for _, step := range []string{"2", "3"} {
				write(t, filepath.Join(u.cfg.Dir, "step-"+step), model(step+damage))
				settled(t, u)
			}
			if _, err := Prune(t.Context(), PruneConfig{Store: newStore(b), Keep: Keep{Last: 1}}); err != nil {
				t.Fatal(err)
			}
			if _, ok := b.Get(key); !ok {
				t.Errorf("with %s: retention removed a COMMIT.json that it cannot read", damage)
			}
		}
	})
}

// Regression: conflict: overwrite replaced a COMMIT that only a later version of stager can read.
func TestCommitOfLaterVersionIsNotReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		if err := pushed(t, b, 5, ConflictFail, "first"); err != nil {
			t.Fatal(err)
		}
		key := stepDir(5, 0) + "/" + commitKey
		good, _ := b.Get(key)
		later := edited(t, good, "requires", []string{"what only a later version knows"})
		b.Put(key, later)
		err := pushed(t, b, 5, ConflictOverwrite, "second")
		if want := "replaces nothing of a later version"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
		if now, _ := b.Get(key); !bytes.Equal(now, later) {
			t.Errorf("the COMMIT became %q, want it as it was", now)
		}
	})
}

func FuzzDecodeCommit(f *testing.F) {
	text, err := encode(goodCommit())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(strings.Replace(string(text), "a/b", "../b", 1)))
	f.Add([]byte(`{"apiVersion":"stager.dev/v1alpha1","kind":"Checkpoint","nodes":1,"files":[{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := DecodeCommit(text)
		if err != nil {
			return
		}
		for _, file := range c.Files {
			if !filepath.IsLocal(file.Path) || file.Size < 0 || ours(file.Path) {
				t.Errorf("decoded a file %+v", file)
			}
		}
		again, err := encode(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeCommit(again); err != nil {
			t.Errorf("what was decoded and encoded is refused: %v", err)
		}
	})
}

func TestNames(t *testing.T) {
	for name, want := range map[string]int64{
		"checkpoint-500": 500, "step_12000": 12000, "epoch-3": 3, "500": 500, "global_step7": 7, "iter_0000500": 500,
		"epoch=3-step=500.ckpt/": 500, "model-9.safetensors/": 9,
		"checkpoint_2026-11-25_08-53-52.962076": 1795596832962, "run-2026-11-25T08-53-52": 1795596832000, "2026-13-25_08-53-52.5": 5, // Ray Train
		"model-501.weights.h5/": 501, "checkpoint_500/": 500, "checkpoint-500/": -1,
		"latest": -1, "run-1.log/": -1, "events.out.12/": -1, "x99999999999999999999": -1, "v1.5b": -1,
	} {
		file := strings.HasSuffix(name, "/") // here: a file
		got, ok := stepOf(strings.TrimSuffix(name, "/"), !file)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("stepOf(%q) = %d, want %d", name, got, want)
		}
	}
	for _, tt := range []struct {
		step   int64
		suffix int
		dir    string
	}{{0, 0, "step-00000000"}, {12000, 0, "step-00012000"}, {123456789012, 3, "step-123456789012-attempt-3"}} {
		if got := stepDir(tt.step, tt.suffix); got != tt.dir {
			t.Errorf("stepDir(%d, %d) = %s, want %s", tt.step, tt.suffix, got, tt.dir)
		}
		if step, suffix, ok := parseStepDir(tt.dir); !ok || step != tt.step || suffix != tt.suffix {
			t.Errorf("parseStepDir(%s) = %d, %d, %v", tt.dir, step, suffix, ok)
		}
	}
	for _, dir := range []string{"step-1", "step-000000001", "step-00000001-attempt-0", "step-00000001x", "xstep-00000001", "step--0000001"} {
		if step, _, ok := parseStepDir(dir); ok {
			t.Errorf("parseStepDir(%s) = %d, want it refused", dir, step)
		}
	}
}

// A store reads in parts: concurrently, in any order, repeatedly, and across part boundaries.
func TestSummedIsTheSumHoweverItIsRead(t *testing.T) {
	const size = 1 << 20
	contents := conformance.ContentsOf("x", size)
	want := contents.Sum(backends.CRC64NVME)
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		var reported int64
		s := newSummed(contents, size, backends.CRC64NVME, func(n int64) { reported += n })
		for range r.IntN(40) {
			off := int64(r.IntN(16)) * (size / 16)
			for n := r.IntN(3); n >= 0 && off < size; n-- {
				buf := make([]byte, size/16)
				if r.IntN(3) == 0 {
					buf = buf[:r.IntN(len(buf))] // a short read
				}
				m, _ := s.ReadAt(buf, off)
				off += int64(m)
			}
		}
		if got, err := s.sum(); err != nil || got != want {
			t.Fatalf("seed %d: %v, %v; want %v", seed, got, err, want)
		}
		if s.finish(false); reported != size {
			t.Errorf("seed %d: told of %d bytes, want %d", seed, reported, size)
		}
		if s.finish(true); reported != 0 {
			t.Errorf("seed %d: after it failed told of %d bytes, want 0", seed, reported)
		}
	}
	short, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer short.Close()
	if sum, err := newSummed(short, 10, backends.CRC64NVME, func(int64) {}).sum(); err == nil {
		t.Errorf("a file that became shorter has the sum %v", sum)
	}
}

// sumsFirst is a protocol in which the checksum of a part precedes its bytes.
type sumsFirst struct {
	backends.Backend
	reported *atomic.Int64
	t        *testing.T
}

func (s sumsFirst) CreateParts(context.Context, string, backends.CreateOptions) (backends.PartWriter, error) {
	return s, nil
}

func (s sumsFirst) WritePart(_ context.Context, _ int64, src *backends.Part) error {
	if _, err := io.Copy(io.Discard, src.Unpaced().Reader()); err != nil {
		return err
	}
	if reported := s.reported.Load(); reported != 0 {
		s.t.Errorf("%d bytes count as sent when they were summed, want 0", reported)
	}
	_, err := io.Copy(io.Discard, src.Reader())
	return err
}
func (sumsFirst) Abort() error                                    { return nil }
func (sumsFirst) Commit(context.Context) (backends.Object, error) { return backends.Object{}, nil }

// Regression: S3 reads every part twice, and the first time is fast. At its start, an upload of
// 100 MiB at 1 MiB/s reported that nothing was left and that its checkpoint would be safe in
// time.
func TestUploadChecksFileAfterChecksum(t *testing.T) {
	const size = 1 << 20
	var reported atomic.Int64
	store := backends.NewStore(sumsFirst{mem.New(), &reported, t}, "mem://test", backends.Options{})
	contents := conformance.ContentsOf("x", size)
	s := newSummed(contents, size, backends.CRC64NVME, func(n int64) { reported.Add(n) })
	if _, err := store.Put(t.Context(), "k", s, size, backends.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if reported.Load() != size {
		t.Errorf("told of %d bytes, want %d", reported.Load(), size)
	}
	if got, err := s.sum(); err != nil || got != contents.Sum(backends.CRC64NVME) {
		t.Errorf("the sum is %v, %v", got, err)
	}
}

// sendsFiles is sumsFirst with the kernel sending the parts.
type sendsFiles struct{ sumsFirst }

func (s sendsFiles) CreateParts(context.Context, string, backends.CreateOptions) (backends.PartWriter, error) {
	return s, nil
}

func (s sendsFiles) WritePart(ctx context.Context, _ int64, src *backends.Part) error {
	if _, err := io.Copy(io.Discard, src.Unpaced().Reader()); err != nil {
		return err
	}
	_, err := src.SendFile(ctx, func(_ *os.File, _ int64, n int) int { return (n + 1) / 2 })
	return err
}

// readFrom counts the bytes that are read.
type readFrom struct {
	io.ReaderAt
	bytes atomic.Int64
}

func (r *readFrom) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(p, off)
	r.bytes.Add(int64(n))
	return n, err
}

// A file that the kernel sends is read once, for the checksum that precedes it, and counts as
// moved when it is sent.
func TestUploadReadsFileOnce(t *testing.T) {
	const size = 1<<20 + 1
	var reported atomic.Int64
	name := filepath.Join(t.TempDir(), "f")
	contents := conformance.ContentsOf("x", size)
	whole, err := io.ReadAll(io.NewSectionReader(contents, 0, size))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	store := backends.NewStore(sendsFiles{sumsFirst{mem.New(), &reported, t}}, "mem://test", backends.Options{})
	reads := &readFrom{ReaderAt: file}
	s := newSummed(reads, size, backends.CRC64NVME, func(n int64) { reported.Add(n) })
	s.lies = file
	if _, err := store.Put(t.Context(), "k", s, size, backends.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := s.sum()
	if want := contents.Sum(backends.CRC64NVME); err != nil || got != want || reported.Load() != size || reads.bytes.Load() != size {
		t.Errorf("the sum is %v, %v, with %d bytes told of and %d read; want %v with %d and %[6]d", got, err, reported.Load(), reads.bytes.Load(), want, int64(size))
	}
}

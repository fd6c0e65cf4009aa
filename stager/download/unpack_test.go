package download

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window/disk"
)

// packTar returns a tar of files. Incompressible text makes it as long as it looks.
func packTar(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, name := range sorted(files) {
		h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(files[name])), ModTime: time.Unix(1e9, 0), Uid: 77}
		if strings.HasPrefix(name, "bin/") {
			h.Mode = 0o700
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, files[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func packZip(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for _, name := range sorted(files) {
		to, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(to, files[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func squeeze(t testing.TB, p []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(p); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func sorted(files map[string]string) (names []string) {
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func noise(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 0))
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return string(p)
}

func (s *source) put(t testing.TB, key string, p []byte) backends.Object {
	t.Helper()
	obj, err := s.store.PutBytes(t.Context(), key, p, backends.CreateOptions{Size: int64(len(p))})
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

// hasDir checks that a directory has exactly these files.
func hasDir(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		p, err := os.ReadFile(path)
		found[name] = string(p)
		info, _ := e.Info()
		want := fs.FileMode(0o644)
		if strings.HasPrefix(name, "bin/") {
			want = 0o755
		}
		if info.Mode() != want {
			t.Errorf("%s is %v, want %v", name, info.Mode(), want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if len(found) != len(files) {
		t.Errorf("%s holds %q, want %q", dir, sorted(found), sorted(files))
	}
	for name, text := range files {
		if found[name] != text {
			t.Errorf("%s/%s has %d bytes, or others than the %d that were packed", dir, name, len(found[name]), len(text))
		}
	}
}

// clean checks that nothing of an archive is left or visible.
func clean(t *testing.T, dir string, wanted ...string) {
	t.Helper()
	if extra := extra(t, dir, wanted...); len(extra) > 0 {
		t.Errorf("there are %q, want nothing", extra)
	}
	for _, name := range waiting(t, dir) {
		t.Errorf("%s is left", name)
	}
}

func TestUnpackMakesDirs(t *testing.T) {
	s := newSource(t, backends.CRC64NVME)
	first := map[string]string{"a": "one", "deep/er/b": noise(1, 5*mib+77), "bin/run": "#!"}
	second := map[string]string{"a": "two", "c": strings.Repeat("text", 100_000)}
	zipped := map[string]string{"x": noise(2, 3*mib), "y/z": "", "y/w": strings.Repeat("long ", mib)}
	s.put(t, "train/1.tar", packTar(t, first))
	s.put(t, "train/2.tar.gz", squeeze(t, packTar(t, second)))
	s.put(t, "z.zip", packZip(t, zipped))
	s.put(t, "empty.tar", packTar(t, nil))
	s.Generate("plain.bin", 1000)
	dir := t.TempDir()
	var last Progress
	cfg := Config{Store: s.store, Dir: dir, Unpack: true, Progress: func(p Progress) { last = p }}
	sum, err := Prefetch(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	look := func() {
		t.Helper()
		hasDir(t, filepath.Join(dir, "train/1"), first)
		hasDir(t, filepath.Join(dir, "train/2"), second)
		hasDir(t, filepath.Join(dir, "z"), zipped)
		hasDir(t, filepath.Join(dir, "empty"), nil)
		holds(t, dir, "plain.bin", 1000)
	}
	look()
	if sum.Files != 5 || sum.FetchedFiles != 5 || sum.Archives != 4 || sum.Unpacked.Files != 8 || sum.Verified["crc64nvme"] != 5 || last.Unpacked != 8 || last.Bytes != last.BytesTotal {
		t.Errorf("summary %+v, progress %+v; want 5 files, of which 4 are archives with 8 files", sum, last)
	}
	reads := s.calls(conformance.Read)
	again, err := Prefetch(t.Context(), cfg)
	if err != nil || again.WarmFiles != 5 || again.Archives != 4 || again.Unpacked != sum.Unpacked || s.calls(conformance.Read) != reads {
		t.Errorf("again: %+v, %v and %d reads; want all to be warm", again, err, s.calls(conformance.Read)-reads)
	}

	// A directory that was removed, lost a file, or is of another archive is unpacked again.
	second = map[string]string{"other": "three"}
	s.put(t, "train/2.tar.gz", squeeze(t, packTar(t, second)))
	if err := os.RemoveAll(filepath.Join(dir, "z")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "train/1/a")); err != nil {
		t.Fatal(err)
	}
	if again, err = Prefetch(t.Context(), cfg); err != nil || again.WarmFiles != 2 || again.FetchedFiles != 3 {
		t.Errorf("%+v, %v; want 2 warm files and 3 fetched", again, err)
	}
	look()

	// This also works without a record, since the times show that there are no other files.
	if err := os.Remove(filepath.Join(dir, recordName)); err != nil {
		t.Fatal(err)
	}
	if again, err = Prefetch(t.Context(), cfg); err != nil || again.FetchedFiles != 4 {
		t.Errorf("without a record: %+v, %v; want 4 fetched", again, err)
	}
	look()
	clean(t, dir, "train/1/deep/er/b", "train/1/a", "train/1/bin/run", "train/2/other", "z/x", "z/y/z", "z/y/w", "plain.bin")
}

func TestUnpackKeepsForeignFiles(t *testing.T) {
	s := newSource(t, backends.CRC64NVME)
	s.put(t, "a.tar", packTar(t, map[string]string{"x": "1"}))
	dir := t.TempDir()
	cfg := Config{Store: s.store, Dir: dir, Unpack: true}
	mine := filepath.Join(dir, "a", "mine")
	refused := func(words string) {
		t.Helper()
		_, err := Prefetch(t.Context(), cfg)
		if backends.KindOf(err) != backends.Exist || !strings.Contains(err.Error(), words) {
			t.Errorf("got %v, want kind Exist and %q", err, words)
		}
		if p, err := os.ReadFile(mine); string(p) != "keep" {
			t.Errorf("a/mine holds %q (%v)", p, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(mine), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mine, []byte("keep"), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg.Overwrite = true
	refused(`1 archive cannot be unpacked, because something that stager did not create has the name of its directory: "a"`)
	cfg.Overwrite = false
	if err := os.RemoveAll(filepath.Dir(mine)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Dir(mine), []byte("a file"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Prefetch(t.Context(), cfg); backends.KindOf(err) != backends.Exist {
		t.Errorf("over a file: got %v, want kind Exist", err)
	}
	if err := os.Remove(filepath.Dir(mine)); err != nil {
		t.Fatal(err)
	}
	if _, err := Prefetch(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mine, []byte("keep"), 0o644); err != nil {
		t.Fatal(err)
	}
	refused("replace it with --overwrite")
	cfg.Overwrite = true
	if _, err := Prefetch(t.Context(), cfg); err != nil {
		t.Error(err)
	}
	hasDir(t, filepath.Dir(mine), map[string]string{"x": "1"})
}

func TestUnpackErrors(t *testing.T) {
	good := packTar(t, map[string]string{"x": "1", "y": noise(3, 3*mib)})
	wide := map[string]string{"a": noise(4, mib), "b": noise(5, mib)}
	// 195 kB became 165 MB in 41,006 entries: directories and empty files were not counted.
	directories, empty := map[string]string{}, map[string]string{}
	for i := range 300 {
		directories[fmt.Sprintf("%d/d/d/x", i)] = ""
		empty[fmt.Sprintf("%d", i)] = ""
	}
	for _, tt := range []struct {
		what  string
		key   string
		p     []byte
		max   int64
		free  int64
		kind  backends.Kind
		words string
	}{
		{"hostile", "a.tar", packTar(t, map[string]string{"ok": "", "../x": ""}), 0, 0, backends.Invalid, `a.tar: the archive is not unpacked: its entry "../x" is refused`},
		{"hostile", "a.zip", packZip(t, map[string]string{"ok": "", "../x": ""}), 0, 0, backends.Invalid, `a.zip: the archive is not unpacked: its entry "../x" is refused`},
		{"a path too long with its directory", strings.Repeat("d/", 30) + "a.tar", packTar(t, map[string]string{strings.Repeat("x/", 2030) + "y": ""}), 0, 0, backends.Invalid, "exceeds 4095 bytes"},
		{"damaged", "a.tar", good[:mib], 0, 0, backends.Corrupt, `the archive is damaged, or has the wrong extension: it ends within its entry "y"`},
		{"damaged", "a.tar.gz", good, 0, 0, backends.Corrupt, "gzip: invalid header"},
		{"damaged", "a.zip", good, 0, 0, backends.Corrupt, "it is truncated: the central directory"},
		{"more than is allowed", "a.tar.gz", squeeze(t, packTar(t, map[string]string{"bomb": strings.Repeat("\x00", 20*mib)})), mib, 0, backends.Invalid, "would use 20971520 bytes, but at most 1048576 are allowed"},
		{"more than is allowed", "a.zip", packZip(t, map[string]string{"bomb": strings.Repeat("\x00", 20*mib)}), mib, 0, backends.Invalid, "would use 20971520 bytes, but at most 1048576 are allowed"},
		{"directories", "a.tar.gz", squeeze(t, packTar(t, directories)), mib, 0, backends.Invalid, "bytes, but at most 1048576 are allowed"},
		{"empty files", "a.zip", packZip(t, empty), mib, 0, backends.Invalid, "bytes, but at most 1048576 are allowed"},
		{"no room", "a.tar.gz", squeeze(t, packTar(t, map[string]string{"bomb": strings.Repeat("\x00", 20*mib)})), 0, 10 * mib, backends.NoSpace, `its entry "bomb" needs 20 MiB (20971520 bytes), but only 10 MiB (10485760 bytes) are free`},
		{"no room", "a.tar", packTar(t, wide), 0, mib, backends.NoSpace, "files to be fetched: 1"},
	} {
		s := newSource(t, backends.CRC64NVME)
		s.put(t, tt.key, tt.p)
		dir := t.TempDir()
		cfg := Config{Store: s.store, Dir: dir, Unpack: true, Listing: plan.Listing{MaxBytes: tt.max}}
		if tt.free > 0 {
			cfg.free = func(*disk.Dir) (int64, error) { return tt.free, nil }
		}
		_, err := Prefetch(t.Context(), cfg)
		if backends.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s, %s: got %v, want kind %v and %q", tt.what, tt.key, err, tt.kind, tt.words)
		}
		if tt.kind == backends.Invalid && errors.As(err, new(*backends.LocalError)) {
			t.Errorf("%s, %s: %v is taken for a failure of the disk", tt.what, tt.key, err)
		}
		clean(t, dir)
	}
}

func TestUnpackedDirsShareNoPath(t *testing.T) {
	for _, tt := range []struct {
		keys []string
		bad  string
	}{
		{[]string{"a.tar", "a.zip"}, "a.zip"},
		{[]string{"a.tar", "a.tar.gz"}, "a.tar.gz"},
		{[]string{"a", "a.tar"}, "a.tar"},
		{[]string{"a", "a-b", "a.tar"}, "a.tar"},
		{[]string{"a.tar", "a.x", "a/b"}, "a/b"},
		{[]string{"a.tar", "a/b.tar"}, "a/b.tar"},
		{[]string{"..tar"}, "..tar"},
		{[]string{"...zip"}, "...zip"},
		{[]string{"a.tar", "ab.tar", "b/a.tar", "a.tar.tar"}, ""},
		{[]string{"a/b", "b.tar", "x/b.tar", ".tar"}, ""},
	} {
		s := newSource(t, "")
		for _, key := range tt.keys {
			s.put(t, key, packTar(t, nil))
		}
		dir := t.TempDir()
		_, err := Prefetch(t.Context(), Config{Store: s.store, Dir: dir, Unpack: true})
		if (err != nil) != (tt.bad != "") || err != nil && (backends.KindOf(err) != backends.Invalid || !strings.Contains(err.Error(), " "+tt.bad+": ")) {
			t.Errorf("%q: got %v, want that %q is refused", tt.keys, err, tt.bad)
		}
		if err != nil {
			clean(t, dir)
		}
	}
}

// The bytes of an archive are verified like those of a file.
func TestUnpackVerifies(t *testing.T) {
	files := map[string]string{"a": noise(6, 9*mib), "b": "1"}
	archive := packTar(t, files)
	for _, tt := range []struct {
		sum     backends.Algorithm
		verify  Verify
		corrupt int
		kind    backends.Kind
		by      string
	}{
		{backends.CRC64NVME, "", 0, 0, "crc64nvme"},
		{backends.CRC64NVME, "", 2, 0, "crc64nvme"}, // and fetched again
		{backends.CRC64NVME, "", 1000, backends.Corrupt, ""},
		{backends.SHA256, VerifyFull, 0, 0, "sha256"},
		{backends.CRC64NVME, VerifySize, 0, 0, "size"},
		{"", "", 0, 0, "size"},
		{"", VerifyFull, 0, backends.Unsupported, ""},
	} {
		s := newSource(t, tt.sum)
		s.put(t, "a.tar", archive)
		s.corrupt["a.tar"] = tt.corrupt
		dir := t.TempDir()
		sum, err := Prefetch(t.Context(), Config{Store: s.store, Dir: dir, Unpack: true, Verify: tt.verify})
		if tt.kind != 0 {
			if backends.KindOf(err) != tt.kind {
				t.Errorf("%+v: got %v", tt, err)
			}
			clean(t, dir)
			continue
		}
		if err != nil || sum.Verified[tt.by] != 1 {
			t.Errorf("%+v: got %+v, %v", tt, sum, err)
			continue
		}
		hasDir(t, filepath.Join(dir, "a"), files)
	}
}

// A kill loses what was unpacked so far, and the next run starts over.
func TestUnpackRestartsAfterKill(t *testing.T) {
	s := newSource(t, backends.CRC64NVME)
	files := map[string]string{"a": noise(7, 3*mib), "b": noise(8, 20*mib)}
	s.put(t, "a.tar", packTar(t, files))
	dir := t.TempDir()
	left := filepath.Join(dir, disk.Private, "incoming", "0123.tree", "a")
	for _, path := range []string{left, filepath.Join(dir, disk.Private, "incoming", "0123.tree.old", "a")} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("half"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, kill := context.WithCancel(t.Context())
	s.faults.AddFor(conformance.Read, "a.tar", conformance.Pass(), conformance.Pass(), conformance.Pass(), conformance.Meanwhile(mib, kill))
	cfg := Config{Store: s.store, Dir: dir, Unpack: true}
	if _, err := Prefetch(ctx, cfg); backends.KindOf(err) != backends.Canceled {
		t.Fatalf("got %v, want kind Canceled", err)
	}
	clean(t, dir)
	if _, err := Prefetch(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	hasDir(t, filepath.Join(dir, "a"), files)
}

// An archive that is replaced while it is read is not mixed with its previous version. It is so
// large that some ranges have not been requested by then. On a busy machine all may have been; then
// the result is the whole previous archive.
func TestUnpackOfAChangedArchiveFails(t *testing.T) {
	for _, key := range []string{"a.tar", "a.zip"} {
		s := newSource(t, backends.CRC64NVME)
		pack := map[string]func(testing.TB, map[string]string) []byte{"a.tar": packTar, "a.zip": packZip}[key]
		before := map[string]string{"a": noise(9, 30*mib)}
		s.put(t, key, pack(t, before))
		other := pack(t, map[string]string{"a": noise(10, 30*mib)})
		s.faults.AddFor(conformance.Read, key, conformance.Pass(), conformance.Pass(), conformance.Meanwhile(mib, func() { s.put(t, key, other) }))
		dir := t.TempDir()
		_, err := Prefetch(t.Context(), Config{Store: s.store, Dir: dir, Unpack: true})
		if err == nil {
			hasDir(t, filepath.Join(dir, "a"), before)
			continue
		}
		if backends.KindOf(err) != backends.Changed {
			t.Errorf("%s: got %v, want kind Changed", key, err)
		}
		clean(t, dir)
	}
}

// BenchmarkUnpackSmallFiles unpacks many small files from one tar.
func BenchmarkUnpackSmallFiles(b *testing.B) {
	files := map[string]string{}
	for i := range 2000 {
		files[fmt.Sprintf("class%02d/%04d.jpg", i/100, i)] = noise(uint64(i), 20<<10)
	}
	s := newSource(b, backends.CRC64NVME)
	s.put(b, "a.tar", packTar(b, files))
	for b.Loop() {
		dir := b.TempDir()
		if _, err := Prefetch(b.Context(), Config{Store: s.store, Dir: dir, Unpack: true}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(files)), "ns/file")
}

package unpack_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/stager/unpack"
)

// memoryDir is an Into in memory. Names of directories end in a slash.
type memoryDir struct {
	files map[string]string
	most  int64 // in bytes; 0: no limit
}

var errFull = errors.New("the memory is full")

func (s *memoryDir) Check(name string) error { return plan.CheckPath("x/" + name) }

func (s *memoryDir) Dir(name string) error {
	for dir := name; dir != "."; dir = path.Dir(dir) {
		if _, is := s.files[dir]; is {
			if dir == name {
				return fs.ErrExist
			}
			return fs.ErrInvalid
		}
	}
	for dir := name; dir != "."; dir = path.Dir(dir) {
		s.files[dir+"/"] = ""
	}
	return nil
}

func (s *memoryDir) File(name string, size int64, executable bool) (io.WriteCloser, error) {
	if dir := path.Dir(name); dir != "." {
		if err := s.Dir(dir); err != nil {
			return nil, fs.ErrInvalid
		}
	}
	_, file := s.files[name]
	_, directory := s.files[name+"/"]
	if file || directory {
		return nil, fs.ErrExist
	}
	if s.most -= size; s.most < 0 && s.most+size > 0 {
		return nil, errFull
	}
	s.files[name] = ""
	if executable {
		s.files[name] = "#!"
	}
	return &shelved{s, name}, nil
}

type shelved struct {
	of   *memoryDir
	name string
}

func (f *shelved) Write(p []byte) (int, error) {
	f.of.files[f.name] += string(p)
	return len(p), nil
}

func (*shelved) Close() error { return nil }

// open unpacks bytes.
func open(f unpack.Format, archive []byte) (map[string]string, unpack.Contents, error) {
	s := &memoryDir{files: map[string]string{}, most: 1 << 30}
	r := bytes.NewReader(archive)
	c, err := unpack.Archive(f, r, bytes.NewReader(archive), int64(len(archive)), s)
	if err == nil && r.Len() > 0 {
		err = fmt.Errorf("%d bytes at the end were not read", r.Len())
	}
	return s.files, c, err
}

// member is an entry of a test archive.
type member struct {
	name, text string
	typeflag   byte // of tar; 0: a file, or a directory if its name says so
	mode       fs.FileMode
}

func file(name, text string) member { return member{name: name, text: text} }

func makeTar(t testing.TB, members ...member) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Typeflag: m.typeflag, Mode: int64(m.mode | 0o644), Size: int64(len(m.text))}
		switch m.typeflag {
		case tar.TypeSymlink, tar.TypeLink:
			h.Linkname = "/etc/passwd"
		case tar.TypeXGlobalHeader:
			*h = tar.Header{Typeflag: m.typeflag, PAXRecords: map[string]string{"comment": "all"}}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatalf("%q: %v", m.name, err)
		}
		if _, err := io.WriteString(w, m.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func makeZip(t testing.TB, members ...member) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for _, m := range members {
		h := &zip.FileHeader{Name: m.name, Method: zip.Deflate}
		h.SetMode(m.mode | 0o644)
		if strings.HasSuffix(m.name, "/") {
			h.SetMode(fs.ModeDir | 0o755)
		}
		to, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(to, m.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func gzipped(t testing.TB, p []byte) []byte {
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

func zstandard(t testing.TB, p []byte, opts ...zstd.EOption) []byte {
	t.Helper()
	var buf bytes.Buffer
	w, err := zstd.NewWriter(&buf, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(p); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// archives returns the same members in every format.
func archives(t testing.TB, members ...member) map[unpack.Format][]byte {
	plain := makeTar(t, members...)
	return map[unpack.Format][]byte{
		unpack.Tar: plain, unpack.TarGzip: gzipped(t, plain), unpack.TarZstd: zstandard(t, plain), unpack.Zip: makeZip(t, members...),
	}
}

func TestUnpackExtractsEveryEntry(t *testing.T) {
	long := strings.Repeat("long/", 60) + "name"
	big := strings.Repeat("0123456789abcdef", 50_000)
	members := []member{
		file("a", "one"), {name: "empty/"}, file("deep/er/b", big), {name: "run", text: "me", mode: 0o755}, file("./dotted", ""),
	}
	members = append(members, file(long, "far"), file("inner.tar", "a nested archive is a file"), member{name: "deep/"}, file("é", "utf-8"))
	want := map[string]string{
		"a": "one", "empty/": "", "deep/": "", "deep/er/": "", "deep/er/b": big, "run": "#!me", "dotted": "", long: "far",
		"inner.tar": "a nested archive is a file", "é": "utf-8",
	}
	for dir := path.Dir(long); dir != "."; dir = path.Dir(dir) {
		want[dir+"/"] = ""
	}
	for f, archive := range archives(t, members...) {
		got, c, err := open(f, archive)
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: got %d entries and %v, want %d", f, len(got), err, len(want))
		}
		if c.Files != 7 || c.Bytes != int64(len("one"+big+"me"+"far"+"a nested archive is a file"+"utf-8")) {
			t.Errorf("%s: %+v is said of 7 files", f, c)
		}
	}
	for f, archive := range archives(t) {
		if got, _, err := open(f, archive); err != nil || len(got) > 0 {
			t.Errorf("an empty %s gives %v and %v, want nothing", f, got, err)
		}
	}
}

// Headers that tar writers add and that are not entries.
func TestUnpackReadsTarVariants(t *testing.T) {
	plain := makeTar(t, member{typeflag: tar.TypeXGlobalHeader}, member{name: "./"}, file("./a", "1"))
	for _, tt := range []struct {
		what    string
		archive []byte
	}{
		{"pax global header, directory itself", plain},
		{"a long last block", append(slices.Clone(plain), make([]byte, 1<<20)...)},
		{"one block of zeros", plain[:len(plain)-512]},
	} {
		if got, _, err := open(unpack.Tar, tt.archive); err != nil || !maps.Equal(got, map[string]string{"a": "1"}) {
			t.Errorf("%s: got %v, %v", tt.what, got, err)
		}
	}
	two := append(gzipped(t, plain[:1000]), gzipped(t, plain[1000:])...)
	if got, _, err := open(unpack.TarGzip, two); err != nil || len(got) != 1 {
		t.Errorf("gzip in two members: got %v, %v", got, err)
	}
}

func TestUnpackRejectsHostileEntries(t *testing.T) {
	both := []unpack.Format{unpack.Tar, unpack.Zip}
	tars := both[:1]
	for _, tt := range []struct {
		words   string
		formats []unpack.Format
		members []member
	}{
		{`its entry "../x" is refused: its part ".." is a relative reference`, both, []member{file("ok", ""), file("../x", "")}},
		{`"a/../../x" is refused`, both, []member{file("a/../../x", "")}},
		{`"/etc/x" is refused: it starts with a slash`, both, []member{file("/etc/x", "")}},
		{`one of its entries has no name`, both, []member{file("", "1")}},
		{`"/" is refused: it starts with a slash`, both, []member{{name: "/"}}},
		{`"a\nb" is refused: it contains the control character 0x0a`, both, []member{file("a\nb", "")}},
		{`exceeds 255 bytes, the limit of a file name`, both, []member{file(strings.Repeat("x", 256), "")}},
		{`exceeds 4095 bytes, the limit of a path`, both, []member{file(strings.Repeat("x/", 2050)+"x", "")}},
		{`"a" is refused: it exists twice`, both, []member{file("a", "1"), file("a", "2")}},
		{`"a" is refused: it exists twice, or as a file and as a directory`, both, []member{{name: "a/"}, file("a", "2")}},
		{`"a/" is refused: it exists twice, or as a file and as a directory`, both, []member{file("a", "2"), {name: "a/"}}},
		{`"a/b" is refused: one of its parent directories is a file`, both, []member{file("a", ""), file("a/b", "")}},
		{`"l" is refused: it is a symbolic link`, tars, []member{{name: "l", typeflag: tar.TypeSymlink}}},
		{`"l" is refused: it is a symbolic link`, both[1:], []member{{name: "l", text: "/etc/passwd", mode: fs.ModeSymlink}}},
		{`"l" is refused: it is a hard link`, tars, []member{file("a", ""), {name: "l", typeflag: tar.TypeLink}}},
		{`"d" is refused: it is a device`, tars, []member{{name: "d", typeflag: tar.TypeChar}}},
		{`"d" is refused: it is a device`, tars, []member{{name: "d", typeflag: tar.TypeBlock}}},
		{`"p" is refused: it is a named pipe`, tars, []member{{name: "p", typeflag: tar.TypeFifo}}},
		{`"p" is refused: it is a named pipe`, both[1:], []member{{name: "p", mode: fs.ModeNamedPipe}}},
		{`"c" is refused: it has type '7'`, tars, []member{{name: "c", typeflag: tar.TypeCont}}},
	} {
		for _, f := range tt.formats {
			all := archives(t, tt.members...)
			_, _, err := open(f, all[f])
			var refused *unpack.Refused
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("%s: got %v, want %q", f, err, tt.words)
			}
		}
	}
}

func TestUnpackRejectsInvalidArchives(t *testing.T) {
	text := strings.Repeat("some text ", 1000)
	all := archives(t, file("a", text), file("b", text))
	sparse := makeTar(t, file("s", text))
	sparse[156] = tar.TypeGNUSparse
	copy(sparse[257:], "ustar  \x00")
	mend(sparse)
	nul := makeTar(t, file("a.b", ""))
	encrypted := slices.Clone(all[unpack.Zip])
	for at := 0; ; {
		i := bytes.Index(encrypted[at:], []byte("PK\x01\x02"))
		if i < 0 {
			break
		}
		encrypted[at+i+8] |= 1
		at += i + 4
	}
	method := bytes.ReplaceAll(all[unpack.Zip], []byte("\x14\x00\x08\x00\x08\x00"), []byte("\x14\x00\x08\x00\x63\x00"))
	swapped := makeZip(t, file("a", "1"), file("b", "2"))
	dir := bytes.Index(swapped, []byte("PK\x01\x02"))
	second := dir + 4 + bytes.Index(swapped[dir+4:], []byte("PK\x01\x02"))
	end := bytes.Index(swapped, []byte("PK\x05\x06"))
	swapped = slices.Concat(swapped[:dir], swapped[second:end], swapped[dir:second], swapped[end:])
	bomb := makeZip(t, file("a", "1"), file("b", "2"))
	copy(bomb[second+42:], bomb[dir+42:dir+46]) // offset of the entry
	flipped := slices.Clone(all[unpack.Tar])
	flipped[3] ^= 1
	wrongSum := makeZip(t, file("a", text))
	wrongSum[60] ^= 1
	var wide bytes.Buffer
	random := make([]byte, 3<<20)
	for i := range random {
		random[i] = byte(i * i >> 7)
	}
	wide.Write(zstandard(t, random, zstd.WithWindowSize(64<<20)))

	for _, tt := range []struct {
		what    string
		format  unpack.Format
		archive []byte
		words   string
	}{
		{"a tar of nothing", unpack.Tar, nil, "truncated"},
		{"a tar that is cut at an entry", unpack.Tar, all[unpack.Tar][:512+10240], "the zero blocks at the end of the tar are missing"},
		{"a tar that is cut in an entry", unpack.Tar, all[unpack.Tar][:3000], `it ends within its entry "a"`},
		{"a tar that is cut in a header", unpack.Tar, all[unpack.Tar][:300], "truncated"},
		{"a tar with a wrong bit", unpack.Tar, flipped, "invalid tar header"},
		{"a tar that is a zip", unpack.Tar, all[unpack.Zip], "is damaged"},
		{"two tars", unpack.Tar, append(slices.Clone(all[unpack.Tar]), all[unpack.Tar]...), "data follows its end"},
		{"a tar with zeros without end", unpack.TarGzip, gzipped(t, append(slices.Clone(nul), make([]byte, 65<<20)...)), "zeros follow its end"},
		{"a sparse file", unpack.Tar, sparse, "it is a sparse file"},
		{"a sparse file of pax", unpack.Tar, paxSparse(t), "it is a sparse file"},
		{"a gzip that is cut", unpack.TarGzip, all[unpack.TarGzip][:40], "truncated"},
		{"a gzip without its last bytes", unpack.TarGzip, all[unpack.TarGzip][:len(all[unpack.TarGzip])-4], "truncated"},
		{"a gzip with a wrong sum", unpack.TarGzip, turned(all[unpack.TarGzip], -8), "checksum"},
		{"a gzip and more", unpack.TarGzip, append(slices.Clone(all[unpack.TarGzip]), "more"...), "after its end"},
		{"a gzip of nothing", unpack.TarGzip, nil, "truncated"},
		{"a tar that says it is a gzip", unpack.TarGzip, all[unpack.Tar], "gzip: invalid header"},
		{"a zstd that is cut", unpack.TarZstd, all[unpack.TarZstd][:60], "damaged"},
		{"a zstd with a wrong sum", unpack.TarZstd, turned(all[unpack.TarZstd], -1), "damaged"},
		{"a zstd of a long window", unpack.TarZstd, wide.Bytes(), "without --long"},
		{"a zip that is cut", unpack.Zip, all[unpack.Zip][:len(all[unpack.Zip])-30], "it is truncated"},
		{"a zip of nothing", unpack.Zip, nil, "it is truncated"},
		{"a zip with a wrong bit", unpack.Zip, wrongSum, `its entry "a"`},
		{"a zip that is encrypted", unpack.Zip, encrypted, "it is encrypted"},
		{"a zip of an unknown method", unpack.Zip, method, "its compression method is not supported"},
		{"a zip in another order", unpack.Zip, swapped, "overlaps or precedes that of the previous entry"},
		{"a zip whose entries are one", unpack.Zip, bomb, "overlaps or precedes"},
	} {
		_, _, err := open(tt.format, tt.archive)
		if err == nil || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s: got %v, want %q", tt.what, err, tt.words)
		}
		var refused *unpack.Refused
		var damaged *unpack.Damaged
		if !errors.As(err, &refused) && !errors.As(err, &damaged) {
			t.Errorf("%s: %v says neither that it is refused nor that it is damaged", tt.what, err)
		}
	}
}

// turned flips one bit, counted from the end.
func turned(p []byte, at int) []byte {
	p = slices.Clone(p)
	p[len(p)+at] ^= 1
	return p
}

// mend corrects the checksum of a tar's first header.
func mend(header []byte) {
	copy(header[148:156], "        ")
	sum := 0
	for _, b := range header[:512] {
		sum += int(b)
	}
	copy(header[148:156], fmt.Sprintf("%06o\x00 ", sum))
}

// paxSparse returns a tar as GNU tar writes it with --sparse --format=pax. The writer of
// archive/tar refuses these records, so they replace others.
func paxSparse(t testing.TB) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	h := &tar.Header{Name: "GNUSparseFile.0/s", Size: 512, Mode: 0o644, Typeflag: tar.TypeReg, PAXRecords: map[string]string{
		"ABC.sparse.major": "1", "ABC.sparse.minor": "0", "ABC.sparse.name": "s", "ABC.sparse.realsize": "9999",
	}}
	if err := w.WriteHeader(h); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(append([]byte("0\n"), make([]byte, 510)...)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(buf.Bytes(), []byte("ABC.sparse"), []byte("GNU.sparse"))
}

// An error of the disk is neither refused nor damaged, whatever a format makes of it.
func TestUnpackPassesErrorsThrough(t *testing.T) {
	broken := errors.New("the wire broke")
	for f, archive := range archives(t, file("a", strings.Repeat("some text ", 100_000))) {
		s := &memoryDir{files: map[string]string{}, most: 10}
		if _, err := unpack.Archive(f, bytes.NewReader(archive), bytes.NewReader(archive), int64(len(archive)), s); !errors.Is(err, errFull) {
			t.Errorf("%s: got %v, want that of the memory", f, err)
		}
		for _, n := range []int64{0, 5, int64(len(archive) / 2)} {
			s := &memoryDir{files: map[string]string{}, most: 1 << 30}
			in := io.MultiReader(io.LimitReader(bytes.NewReader(archive), n), failing{broken})
			if _, err := unpack.Archive(f, in, bytes.NewReader(archive), int64(len(archive)), s); !errors.Is(err, broken) {
				t.Errorf("%s broken at %d: got %v, want %v", f, n, err, broken)
			}
		}
	}
	archive := makeZip(t, file("a", "1"))
	s := &memoryDir{files: map[string]string{}, most: 1 << 30}
	if _, err := unpack.Archive(unpack.Zip, bytes.NewReader(archive), failingAt{broken}, int64(len(archive)), s); !errors.Is(err, broken) {
		t.Errorf("zip without its directory: got %v, want %v", err, broken)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

type failingAt struct{ err error }

func (f failingAt) ReadAt([]byte, int64) (int, error) { return 0, f.err }

// Bytes read ahead from a zip must equal those that arrive, or the archive is refused.
func TestZipDirectoryMismatchIsDetected(t *testing.T) {
	archive := makeZip(t, file("a", "1"), file("b", "2"))
	other := bytes.Clone(archive)
	at := bytes.LastIndex(other, []byte("b"))
	other[at] = 'c'
	s := &memoryDir{files: map[string]string{}, most: 1 << 30}
	_, err := unpack.Archive(unpack.Zip, bytes.NewReader(archive), bytes.NewReader(other), int64(len(archive)), s)
	if err == nil || !strings.Contains(err.Error(), "central directory differ") {
		t.Errorf("got %v, want that the directory differs", err)
	}
}

func TestDirsOfNames(t *testing.T) {
	for _, tt := range []struct {
		key, directory string
		format         unpack.Format
	}{
		{"train/1.tar", "train/1", unpack.Tar},
		{"a.b.tar.gz", "a.b", unpack.TarGzip},
		{"a.tgz", "a", unpack.TarGzip},
		{"a.tar.zst", "a", unpack.TarZstd},
		{"a.tar.tar", "a.tar", unpack.Tar},
		{"x/a.zip", "x/a", unpack.Zip},
		{"a.gz", "", ""},
		{"a.TAR", "", ""},
		{".tar", "", ""},
		{"x/.tar.gz", "x/.tar", ""},
		{"tar", "", ""},
	} {
		if directory, format := unpack.Dir(tt.key); format != tt.format || format != "" && directory != tt.directory {
			t.Errorf("%q is %q of %q, want %q of %q", tt.key, directory, format, tt.directory, tt.format)
		}
	}
}

package format

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// samples reads testdata/samples.json.gz: small files written by libraries, by name.
func samples(t testing.TB) map[string][]byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "samples.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var files map[string]string
	if err := json.NewDecoder(z).Decode(&files); err != nil {
		t.Fatal(err)
	}
	all := make(map[string][]byte)
	for name, text := range files {
		if all[name], err = base64.StdEncoding.DecodeString(text); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// cuts returns the lengths to which a file is truncated: every length of a small file; for a
// larger one, every length near both ends.
func cuts(p []byte) (at []int) {
	for n := range p {
		if len(p) < 2100 || n < 64 || len(p)-n < 300 || n%61 == 0 {
			at = append(at, n)
		}
	}
	return at
}

func judge(t testing.TB, name string, p []byte) Result {
	t.Helper()
	got, err := Judge(name, bytes.NewReader(p), int64(len(p)))
	if err != nil {
		t.Fatalf("Judge(%s, %d bytes) = %v", name, len(p), err)
	}
	return got
}

// verdicts are the expected verdicts on the whole samples.
var verdicts = map[string]Result{
	"torch.pt":           {Verdict: Whole, Kind: "zip"},
	"legacy.pt":          {Verdict: Unknown, Kind: "torch legacy"},
	"a.npz":              {Verdict: Whole, Kind: "zip"},
	"m.keras":            {Verdict: Whole, Kind: "zip"},
	"zip64.zip":          {Verdict: Whole, Kind: "zip"},
	"comment.zip":        {Verdict: Whole, Kind: "zip"},
	"m.safetensors":      {Verdict: Whole, Kind: "safetensors"},
	"f8.npy":             {Verdict: Whole, Kind: "npy"},
	"i1.npy":             {Verdict: Whole, Kind: "npy"},
	"u5.npy":             {Verdict: Whole, Kind: "npy"},
	"date.npy":           {Verdict: Whole, Kind: "npy"},
	"fields.npy":         {Verdict: Unknown, Kind: "npy"},
	"w.weights.h5":       {Verdict: Whole, Kind: "hdf5"},
	"latest.h5":          {Verdict: Whole, Kind: "hdf5"},
	"t.parquet":          {Verdict: Whole, Kind: "parquet"},
	"dcp/.metadata":      {Verdict: Whole, Kind: "pickle"},
	"p2.pkl":             {Verdict: Whole, Kind: "pickle"},
	"p5.pkl":             {Verdict: Whole, Kind: "pickle"},
	"joblib.pkl":         {Verdict: Unknown, Kind: "pickle"},
	"ckpt-500.index":     {Verdict: Whole, Kind: "tensorflow index"},
	"trainer_state.json": {Verdict: Whole, Kind: "json"},
}

// A complete file is never Incomplete, and a file truncated at any byte is never Whole.
func TestJudgeTruncatedAtEveryByte(t *testing.T) {
	all := samples(t)
	for name, want := range verdicts {
		p, ok := all[name]
		if !ok {
			t.Errorf("there is no sample %s", name)
			continue
		}
		if got := judge(t, name, p); got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
		for _, n := range cuts(p) {
			if got := judge(t, name, p[:n]); got.Verdict == Whole {
				t.Errorf("%s: the first %d of %d bytes are %v", name, n, len(p), got.Verdict)
				break
			}
		}
	}
	for name := range all {
		if _, ok := verdicts[name]; !ok {
			t.Errorf("there is no verdict for the sample %s", name)
		}
	}
}

// Truncated files are Incomplete, not only Unknown, if the format permits this.
func TestJudgeNamesTruncatedFiles(t *testing.T) {
	all := samples(t)
	for _, name := range []string{"torch.pt", "a.npz", "m.keras", "zip64.zip", "comment.zip", "m.safetensors", "f8.npy", "w.weights.h5", "t.parquet", "dcp/.metadata", "p5.pkl"} {
		p := all[name]
		for _, n := range cuts(p)[1:] {
			if got := judge(t, name, p[:n]); got.Verdict != Incomplete || got.Reason == "" {
				t.Errorf("%s: the first %d of %d bytes are %v (%q), want incomplete with a reason", name, n, len(p), got.Verdict, got.Reason)
				break
			}
		}
	}
}

func safetensorsOf(header string, length uint64, data int) []byte {
	return append(append(binary.LittleEndian.AppendUint64(nil, length), header...), make([]byte, data)...)
}

// Hostile files cause no large allocation and are never Whole.
func TestJudgeHostileFiles(t *testing.T) {
	const header = `{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`
	entry := "PK\x03\x04" + strings.Repeat("x", 60)
	end := func(entries uint16, size, offset uint32, comment string) string {
		p := append([]byte(zipEnd), 0, 0, 0, 0)
		p = binary.LittleEndian.AppendUint16(p, entries)
		p = binary.LittleEndian.AppendUint16(p, entries)
		p = binary.LittleEndian.AppendUint32(p, size)
		p = binary.LittleEndian.AppendUint32(p, offset)
		return string(binary.LittleEndian.AppendUint16(p, uint16(len(comment)))) + comment
	}
	locator := func(off uint64) string {
		return zip64Locator + "\x00\x00\x00\x00" + string(binary.LittleEndian.AppendUint64(nil, off)) + "\x01\x00\x00\x00"
	}
	for name, p := range map[string]string{
		"header of 2^60.safetensors":   string(safetensorsOf(header, 1<<60, 4)),
		"header of 2^64-1.safetensors": string(safetensorsOf(header, math.MaxUint64, 4)),
		"negative.safetensors":         string(safetensorsOf(strings.Replace(header, "[0,4]", "[-4,0]", 1), uint64(len(header))+1, 4)),
		"zeros.safetensors":            string(make([]byte, 1000)),
		"forged.zip":                   entry + end(1, 46, 4, ""),
		"forged far.zip":               entry + end(1, math.MaxUint32-1, math.MaxUint32-1, ""),
		"forged empty.zip":             entry + end(0, 0, uint32(len(entry)), ""),
		"forged entries.zip":           entry + end(65000, 46, uint32(len(entry)-46), ""),
		"forged in a comment.zip":      entry + end(1, 46, 18, end(1, 46, 18, "")),
		"forged zip64.zip":             entry + locator(1<<63) + end(65535, math.MaxUint32, math.MaxUint32, ""),
		"forged zip64 here.zip":        entry + locator(0) + end(65535, math.MaxUint32, math.MaxUint32, ""),
		"forged many ends.zip":         entry + strings.Repeat(zipEnd, 1000),
		"huge.npy":                     "\x93NUMPY\x01\x00\x76\x00{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807, 9223372036854775807), }" + strings.Repeat(" ", 40),
		"overflow.npy":                 "\x93NUMPY\x02\x00\xff\xff\xff\xff{'descr'",
		"no width.h5":                  "\x89HDF\r\n\x1a\n\x00\x00\x00\x00\x00\x00" + strings.Repeat("\x00", 100),
		"wide.h5":                      "\x89HDF\r\n\x1a\n\x00\x00\x00\x00\x00\xff" + strings.Repeat("\xff", 100),
		"footer.parquet":               "PAR1" + "\xff\xff\xff\xff" + "PAR1",
		"opcodes.pkl":                  "\x80\x02" + strings.Repeat("\x8e\xff\xff\xff\xff\xff\xff\xff\xff", 10) + ".",
		"line.pkl":                     "\x80\x02c" + strings.Repeat("a", 100<<10),
	} {
		got, err := Judge(name, strings.NewReader(p), int64(len(p)))
		if got.Verdict == Whole || err != nil && !errors.Is(err, io.ErrNoProgress) {
			t.Errorf("%s: got %+v, %v, want it not to be whole", name, got, err)
		}
	}
}

// counted counts the bytes read from a file of zeros with a given head.
type counted struct {
	head []byte
	size int64
	n    int64
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	n := int(min(int64(len(p)), c.size-off))
	c.n += int64(n)
	clear(p[:n])
	if off < int64(len(c.head)) {
		copy(p[:n], c.head[off:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Judge reads only a few KiB of a large file.
func TestJudgeReadsLittle(t *testing.T) {
	const header = `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1000000000000]}}`
	for name, head := range map[string]string{
		"large.safetensors": string(safetensorsOf(header, uint64(len(header)), 0)),
		"large.pt":          "PK\x03\x04",
		"large.npy":         "\x93NUMPY\x01\x00\x3c\x00{'descr': '<f8', 'fortran_order': False, 'shape': (99999,)}  ",
		"large.pkl":         "\x80\x04\x8e\x00\x00\x00\x00\x00\x10\x00\x00",
		"large.h5":          "\x89HDF\r\n\x1a\n",
		"large.json":        "{",
		"large.distcp":      "anything",
	} {
		c := &counted{head: []byte(head), size: 1 << 50}
		if _, err := Judge(name, c, c.size); err != nil || c.n > 96<<10 {
			t.Errorf("%s: %d bytes were read, %v, want at most 96 KiB", name, c.n, err)
		}
	}
}

func TestMissingParts(t *testing.T) {
	for _, c := range []struct {
		names string
		want  string
	}{
		{"model-00001-of-00002.safetensors model-00002-of-00002.safetensors", ""},
		{"ckpt.data-00000-of-00002 ckpt.data-00001-of-00002 ckpt.index", ""},
		{"a.pt b.pt", ""},
		{"model-00001-of-00003.safetensors model-00003-of-00003.safetensors", "2 of the 3 files model-K-of-00003.safetensors are there"},
		{"ckpt.data-00001-of-00002", "1 of the 2 files ckpt.data-K-of-00002 are there"},
		{"a/m-1-of-2.bin b/m-2-of-2.bin", "1 of the 2 files a/m-K-of-2.bin are there"},
		{"m-7-of-2.bin m-9-of-2.bin", "0 of the 2 files m-K-of-2.bin are there"},
		{"m-1-of-999999.bin", "1 of the 999999 files m-K-of-999999.bin are there"},
	} {
		if got := MissingParts(strings.Fields(c.names)); got != c.want {
			t.Errorf("MissingParts(%s) = %q, want %q", c.names, got, c.want)
		}
	}
}

func TestIndex(t *testing.T) {
	sizes := map[string]int64{"a.safetensors": 100, "b.safetensors": 50}
	size := func(name string) (int64, bool) { n, ok := sizes[name]; return n, ok }
	for text, want := range map[string]Verdict{
		`{"metadata":{"total_size":120},"weight_map":{"x":"a.safetensors","y":"b.safetensors"}}`: Whole,
		`{"metadata":{"total_size":120.0},"weight_map":{"x":"a.safetensors"}}`:                   Whole,
		`{"metadata":{"total_size":500},"weight_map":{"x":"a.safetensors","y":"b.safetensors"}}`: Incomplete,
		`{"metadata":{"total_size":120},"weight_map":{"x":"a.safetensors","y":"c.safetensors"}}`: Incomplete,
		`{"metadata":{"total_size":120},"weight_map":{"x":"../../etc/passwd"}}`:                  Incomplete,
		`{"metadata":{"total_size":120},"weight_map":{"x":"/etc/passwd"}}`:                       Incomplete,
		`{"metadata":{"total_size":120},"weight_map":{"x":""}}`:                                  Incomplete,
		`{"metadata":{"total_size":120},"weight_map":{"x":"a.safetensors"`:                       Incomplete,
		`{}`: Incomplete,
	} {
		index, got, err := ReadIndex(strings.NewReader(text), int64(len(text)))
		if got.Verdict == Whole {
			got = index.Judge(size)
		}
		if got.Verdict != want || err != nil {
			t.Errorf("index %s: got %+v, %v, want %v", text, got, err, want)
		}
	}
	if index, got, err := ReadIndex(&counted{size: 1 << 50}, 1<<50); got.Verdict != Unknown || err != nil || len(index.Shards) > 0 {
		t.Errorf("an index of 2^50 bytes: got %v, %+v, %v, want unknown", index, got, err)
	}
}

// Judge returns an error for a file shorter than its size, and returns read errors.
func TestJudgeReturnsErrorsOfReading(t *testing.T) {
	if _, err := Judge("a.pt", strings.NewReader("PK\x03\x04"), 100); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v, want %v", err, io.ErrUnexpectedEOF)
	}
}

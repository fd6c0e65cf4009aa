package sample

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
)

// spanned returns the spans of an archive as text.
func spanned(t *testing.T, name string, body []byte) (*format, string, error) {
	t.Helper()
	f, spans, err := index(name, bytes.NewReader(body), int64(len(body)))
	var all []string
	for _, s := range spans {
		all = append(all, fmt.Sprintf("%d-%d", s.off, s.end))
	}
	return f, strings.Join(all, " "), err
}

func TestSamplesOfTar(t *testing.T) {
	long := strings.Repeat("x", 150)
	for _, tt := range []struct {
		about string
		files []string
		want  string // in blocks of 512
	}{
		{"files of one name", []string{"a.jpg", "a.cls", "b.jpg"}, "0-4 4-6"},
		{"the first dot counts", []string{"a.seg.png", "a.jpg"}, "0-4"},
		{"directories are part of the name", []string{"x/a.jpg", "y/a.jpg"}, "0-2 2-4"},
		{"a dot in a directory is none", []string{"x.y/a.jpg", "x.y/b.jpg"}, "0-2 2-4"},
		{"hidden files are none of a sample", []string{"x/.a.jpg", "x/.b.jpg"}, "0-2 2-4"},
		{"without extension", []string{"a", "b"}, "0-2 2-4"},
		{"directories are left out", []string{"x/", "x/a.jpg", "y/", "y/a.jpg"}, "1-3 4-6"},
		{"but within a sample", []string{"a.jpg", "x/", "a.cls"}, "0-5"},
		{"long names have headers of their own", []string{"x/" + long + ".jpg", "b.jpg"}, "0-4 4-6"},
		{"nothing", nil, ""},
	} {
		_, got, err := spanned(t, "s.tar", archive(t, tt.files...))
		want := ""
		if tt.want != "" {
			for _, s := range strings.Fields(tt.want) {
				var off, end int
				_, _ = fmt.Sscanf(s, "%d-%d", &off, &end)
				want += fmt.Sprintf(" %d-%d", off*512, end*512)
			}
		}
		if got != strings.TrimSpace(want) || err != nil {
			t.Errorf("%s: got %s, %v, want %s", tt.about, got, err, want)
		}
	}
}

// The checksum from the format's documentation: CRC-32C of "123456789", masked.
func TestMaskedChecksum(t *testing.T) {
	if got, want := crc32.Checksum([]byte("123456789"), castagnoli), uint32(0xe3069283); got != want {
		t.Errorf("got %#x, want %#x", got, want)
	}
	// An empty record, as TensorFlow writes it.
	want := []byte{0, 0, 0, 0, 0, 0, 0, 0, 0x29, 0x03, 0x98, 0x07, 0xd8, 0xea, 0x82, 0xa2}
	if got := record(""); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

func TestIndexRejectsBadArchives(t *testing.T) {
	two := append(record("one"), record("two")...)
	spoil := func(body []byte, at int) []byte {
		body = bytes.Clone(body)
		body[at] ^= 0x40
		return body
	}
	huge := binary.LittleEndian.AppendUint64(nil, 1<<62)
	huge = binary.LittleEndian.AppendUint32(huge, masked(crc32.Checksum(huge, castagnoli)))
	good := archive(t, "a.jpg", "b.jpg")
	for _, tt := range []struct {
		name string
		body []byte
		want string
	}{
		{"x.tfrecord", spoil(two, 13), "record 0, at byte 0, has data with a wrong checksum"},
		{"x.tfrecord", spoil(two, 20), "record 1, at byte 19, has a length with a wrong checksum"},
		{"x.tfrecord", spoil(two, len(two)-1), "record 1, at byte 19, has data with a wrong checksum"},
		{"x.tfrecord", two[:len(two)-1], "record 1, at byte 19, is truncated"},
		{"x.tfrecord", two[:19+5], "record 1, at byte 19, is truncated"},
		{"x.tfrecord", append(huge, 1, 2, 3, 4), "record 0, at byte 0, is truncated"},
		{"x.tar", good[:700], "its entry a.jpg is truncated"},
		{"x.tar", good[:1300], "cannot read its entry at byte 1024: unexpected EOF"},
		{"x.tar", spoil(good, 1030), "cannot read its entry at byte 1024: archive/tar: invalid tar header"},
		{"x.jpg", []byte("\xff\xd8\xff"), "it is not a tar archive or a TFRecord file"},
		{"x.zst", []byte("\x28\xb5\x2f\xfd"), "it is compressed (zstd); samples can only be read from uncompressed tar and TFRecord files"},
	} {
		_, got, err := spanned(t, tt.name, tt.body)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s: got %s, %v, want %s", tt.name, got, err, tt.want)
		}
	}
}

// FuzzIndex checks that, for any bytes, samples lie within the file, one after the other.
func FuzzIndex(f *testing.F) {
	f.Add("a.tar", archive(f, "a.jpg", "a.cls", "x/", "b"))
	f.Add("a.tfrecord", append(record("one"), record("")...))
	f.Add("a", []byte{})
	f.Fuzz(func(t *testing.T, name string, body []byte) {
		_, spans, err := index(name, bytes.NewReader(body), int64(len(body)))
		at := int64(0)
		for _, s := range spans {
			if err != nil || s.off < at || s.end <= s.off || s.end > int64(len(body)) {
				t.Fatalf("got %v, %v of %d bytes", spans, err, len(body))
			}
			at = s.end
		}
	})
}

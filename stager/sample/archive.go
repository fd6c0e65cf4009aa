package sample

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"strings"

	"github.com/stager-dev/stager/stager/unpack"
)

// ArchiveError reports why a shard cannot be sampled.
type ArchiveError struct {
	Input, Name string
	Err         error
}

func (e *ArchiveError) Error() string {
	return fmt.Sprintf("%s of input %s cannot be sampled: %v; repair it at its source, or exclude it in the plan", e.Name, e.Input, e.Err)
}

// Unwrap returns the cause.
func (e *ArchiveError) Unwrap() error { return e.Err }

// format is an archive format. Samples of one format can be concatenated.
type format struct {
	name  string // for messages
	ext   string
	end   int64 // number of zeros at the end of a file
	index func(*io.SectionReader) ([]span, error)
}

var (
	tarFormat    = &format{"tar", ".tar", 2 * tarBlock, indexTar}
	recordFormat = &format{"TFRecord", ".tfrecord", 0, indexRecords}
)

// span is the location of a sample in its archive.
type span struct {
	off, end int64
	key      uint64 // hash of its name: two samples with one key must not be adjacent; 0: no name
}

// index returns the format and the samples of an archive. It verifies all checksums. The format is
// nil if the archive is empty.
func index(name string, r io.ReaderAt, size int64) (*format, []span, error) {
	var head [300]byte
	n, err := r.ReadAt(head[:min(size, int64(len(head)))], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	f, err := formatOf(name, head[:n])
	if err != nil {
		return nil, nil, err
	}
	spans, err := f.index(io.NewSectionReader(r, 0, size))
	if err == nil && len(spans) == 0 {
		f = nil
	}
	return f, spans, err
}

// packed are the first bytes of compressed files.
var packed = []struct{ begin, name string }{
	{"\x1f\x8b", "gzip"}, {"\x28\xb5\x2f\xfd", "zstd"}, {"BZh", "bzip2"}, {"\xfd7zXZ\x00", "xz"}, {"PK\x03\x04", "zip"},
}

// formatOf determines the format by the first bytes, or by the name if the file is damaged.
func formatOf(name string, head []byte) (*format, error) {
	for _, p := range packed {
		if bytes.HasPrefix(head, []byte(p.begin)) {
			return nil, fmt.Errorf("it is compressed (%s); samples can only be read from uncompressed tar and TFRecord files", p.name)
		}
	}
	switch {
	case len(head) == 0, isRecord(head), strings.Contains(name, ".tfrecord"):
		return recordFormat, nil
	case len(head) >= 262 && string(head[257:262]) == "ustar", strings.HasSuffix(name, ".tar"):
		return tarFormat, nil
	}
	return nil, errors.New("it is not a tar archive or a TFRecord file")
}

// A record of TFRecord has a length (8 bytes), the checksum of the length (4), the data, and their
// checksum (4).
const (
	recordHead = 12
	recordRest = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns a CRC-32C as TFRecord stores it.
func masked(crc uint32) uint32 { return (crc>>15 | crc<<17) + 0xa282ead8 }

func isRecord(head []byte) bool {
	return len(head) >= recordHead && masked(crc32.Checksum(head[:8], castagnoli)) == binary.LittleEndian.Uint32(head[8:])
}

func indexRecords(r *io.SectionReader) (spans []span, err error) {
	in := bufio.NewReaderSize(r, 1<<20)
	buf := make([]byte, 64<<10)
	var head [recordHead]byte
	for at := int64(0); at < r.Size(); {
		bad := func(what string) error { return fmt.Errorf("record %d, at byte %d, %s", len(spans), at, what) }
		if r.Size()-at < recordHead+recordRest {
			return nil, bad("is truncated")
		}
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return nil, err
		}
		if !isRecord(head[:]) {
			return nil, bad("has a length with a wrong checksum")
		}
		n := binary.LittleEndian.Uint64(head[:8])
		if n > uint64(r.Size()-at-recordHead-recordRest) {
			return nil, bad("is truncated")
		}
		sum := crc32.New(castagnoli)
		if _, err := io.CopyBuffer(sum, io.LimitReader(in, int64(n)), buf); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(in, head[:recordRest]); err != nil {
			return nil, err
		}
		if masked(sum.Sum32()) != binary.LittleEndian.Uint32(head[:]) {
			return nil, bad("has data with a wrong checksum")
		}
		end := at + recordHead + int64(n) + recordRest
		spans = append(spans, span{off: at, end: end})
		at = end
	}
	return spans, nil
}

const tarBlock = 512

// indexTar finds samples as WebDataset defines them: consecutive regular files whose paths are
// equal up to the first dot of the last element. Other entries between two files of a sample belong
// to it; entries between samples are omitted.
func indexTar(r *io.SectionReader) (spans []span, err error) {
	in := tar.NewReader(r)
	last := ""
	for at := int64(0); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return spans, nil
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read its entry at byte %d: %w", at, err)
		}
		if unpack.IsSparse(header) {
			return nil, fmt.Errorf("its entry %s is a sparse file, which is not supported; pack it without --sparse", header.Name)
		}
		data, err := r.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		begin := at
		at = data + (header.Size+tarBlock-1)/tarBlock*tarBlock
		if at > r.Size() {
			return nil, fmt.Errorf("its entry %s is truncated", header.Name)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		key := sampleKey(header.Name)
		if len(spans) > 0 && key == last {
			spans[len(spans)-1].end = at
			continue
		}
		sum := fnv.New64a()
		sum.Write([]byte(key)) // never fails
		spans = append(spans, span{begin, at, max(sum.Sum64(), 1)})
		last = key
	}
}

// sampleKey returns the common part of the paths of a sample's files: up to the first dot of the
// last element, unless that begins with a dot.
func sampleKey(path string) string {
	base := strings.LastIndexByte(path, '/') + 1
	if dot := strings.IndexByte(path[base:], '.'); dot > 0 {
		return path[:base+dot]
	}
	return path
}

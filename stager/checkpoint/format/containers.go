package format

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"regexp"
)

// judgeHDF5 checks HDF5. The superblock records where the file ends, and contains a flag while
// the library has the file open for writing.
func judgeHDF5(in input) (Result, error) {
	const short = "breaks off within its superblock"
	if len(in.head) < 16 {
		return in.incomplete(short), nil
	}
	var width, at, flags int
	switch version := in.head[8]; version {
	case 0, 1:
		width, at, flags = int(in.head[13]), 24+4*int(version), 20
	case 2, 3:
		width, at, flags = int(in.head[9]), 12, 11
	default:
		return unknown, nil
	}
	if width != 4 && width != 8 {
		return unknown, nil
	}
	if len(in.head) < at+4*width {
		return in.incomplete(short), nil
	}
	if in.head[flags]&1 != 0 {
		return in.incomplete("is marked as open for writing"), nil
	}
	number := func(i int) uint64 {
		p := in.head[at+i*width:]
		if width == 4 {
			return uint64(binary.LittleEndian.Uint32(p))
		}
		return binary.LittleEndian.Uint64(p)
	}
	base, end, size := number(0), number(2), uint64(in.size)
	switch {
	case base != 0:
		return unknown, nil
	case end > size:
		return in.incomplete("has %d of the %d bytes that its superblock says", size, end), nil
	case end < size:
		return unknown, nil
	}
	return whole, nil
}

// judgeParquet checks Parquet. The file ends with a footer, its length, and the magic again.
func judgeParquet(in input) (Result, error) {
	if in.size < 12 {
		return in.incomplete("is a Parquet file without its footer"), nil
	}
	tail, err := in.read(in.size-8, 8)
	if err != nil {
		return unknown, err
	}
	n := int64(binary.LittleEndian.Uint32(tail))
	if string(tail[4:]) != "PAR1" || n == 0 || n > in.size-12 {
		return in.incomplete("is a Parquet file without its footer"), nil
	}
	return whole, nil
}

// tableMagic ends a table, which is the format of the index of a TensorFlow checkpoint.
const tableMagic = "\x57\xfb\x80\x8b\x24\x75\x47\xdb"

func judgeTable(in input) (Result, error) {
	const footer = 48
	if in.size < footer {
		return unknown, nil
	}
	tail, err := in.read(in.size-8, 8)
	if err != nil || string(tail) != tableMagic {
		return unknown, err
	}
	return whole, nil
}

// judgeJSON checks a JSON object. Python may have written it, so it may contain NaN.
func judgeJSON(in input) (Result, error) {
	if in.head[0] != '{' {
		return unknown, nil
	}
	n := min(in.size, headLimit)
	tail, err := in.read(in.size-n, n)
	if err != nil {
		return unknown, err
	}
	tail = bytes.TrimRight(tail, " \t\r\n")
	if len(tail) > 0 && tail[len(tail)-1] != '}' {
		return in.incomplete("is a JSON object that breaks off"), nil
	}
	if in.size > headerLimit {
		return unknown, nil
	}
	text, err := in.read(0, in.size)
	if err != nil {
		return unknown, err
	}
	if json.Valid(text) || json.Valid(notNumbers.ReplaceAll(text, []byte("0"))) {
		return whole, nil
	}
	if dec := json.NewDecoder(bytes.NewReader(text)); dec.Decode(new(json.RawMessage)) == nil {
		return unknown, nil // one value per line
	}
	return in.incomplete("is a JSON object that breaks off"), nil
}

// notNumbers matches numbers that Python writes and JSON does not allow.
var notNumbers = regexp.MustCompile(`-?\b(?:NaN|Infinity)\b`)

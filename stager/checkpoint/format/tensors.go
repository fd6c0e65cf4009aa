package format

import (
	"encoding/binary"
	"math/bits"
	"regexp"
	"strconv"
	"strings"
)

// longestSafetensors is the maximum header length that the format allows.
const longestSafetensors = 100 << 20

// judgeSafetensors checks the length of the header, the header in JSON, and the number of bytes
// that the header records.
func judgeSafetensors(in input) (Result, error) {
	if in.size < 8 {
		return in.incomplete("breaks off within the length of its header"), nil
	}
	n := binary.LittleEndian.Uint64(in.head)
	if n > longestSafetensors {
		return unknown, nil // another format under this name
	}
	header := int64(n)
	if header > in.size-8 {
		return in.incomplete("is shorter than its header"), nil
	}
	if header > headerLimit {
		return unknown, nil
	}
	text, err := in.read(8, header)
	if err != nil {
		return unknown, err
	}
	end, err := dataEnd(text)
	if err != nil {
		return Result{Verdict: Incomplete, Reason: err.Error()}, nil // the verdict on the file, not a failure to read it
	}
	switch data := in.size - 8 - header; {
	case end > data:
		return in.incomplete("has %d of the %d bytes of data that its header says", data, end), nil
	case end < data:
		return unknown, nil
	}
	return whole, nil
}

var (
	npyDescr = regexp.MustCompile(`'descr': *'[<>|=]?([a-zA-Z?])([0-9]{0,6})(?:\[[^\]]*\])?'`)
	npyShape = regexp.MustCompile(`'shape': *\(([0-9, ]*)\)`)
)

// judgeNPY checks the magic, the version, the length of a header that is a Python dict, and the
// data of the array.
func judgeNPY(in input) (Result, error) {
	const short = "breaks off within its header"
	if in.size < 10 {
		return in.incomplete(short), nil
	}
	start, n := int64(10), int64(binary.LittleEndian.Uint16(in.head[8:]))
	if in.head[6] > 1 {
		if in.size < 12 {
			return in.incomplete(short), nil
		}
		start, n = 12, int64(binary.LittleEndian.Uint32(in.head[8:]))
	}
	if n > in.size-start {
		return in.incomplete(short), nil
	}
	if n > 1<<20 {
		return unknown, nil
	}
	header, err := in.read(start, n)
	if err != nil {
		return unknown, err
	}
	descr, shape := npyDescr.FindSubmatch(header), npyShape.FindSubmatch(header)
	if descr == nil || shape == nil || string(descr[1]) == "O" {
		return unknown, nil // fields, or a pickle
	}
	item, _ := strconv.ParseUint(string(descr[2]), 10, 32) // the pattern allows only digits
	switch string(descr[1]) {
	case "U":
		item *= 4
	case "?":
		item = max(item, 1)
	}
	want := item
	for _, dim := range strings.Split(string(shape[1]), ",") {
		if dim = strings.TrimSpace(dim); dim == "" {
			continue
		}
		d, err := strconv.ParseUint(dim, 10, 63)
		hi, lo := bits.Mul64(want, d)
		if err != nil || hi > 0 {
			return unknown, nil
		}
		want = lo
	}
	switch data := uint64(in.size - start - n); {
	case want > data:
		return in.incomplete("has %d of the %d bytes of its array", data, want), nil
	case want < data:
		return unknown, nil
	}
	return whole, nil
}

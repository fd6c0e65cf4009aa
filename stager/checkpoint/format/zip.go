package format

import (
	"bytes"
	"encoding/binary"
	"math"
)

// The signatures and lengths of the records of a zip archive.
const (
	zipEnd        = "PK\x05\x06"
	zipEndLen     = 22
	zip64End      = "PK\x06\x06"
	zip64EndLen   = 56
	zip64Locator  = "PK\x06\x07"
	zip64LocLen   = 20
	zipEntry      = "PK\x01\x02"
	zipEntryLen   = 46
	shortTail     = 4 << 10
	longestTail   = zipEndLen + math.MaxUint16
	noEnd         = "is a zip archive without its end, as torch.save leaves it when it is killed"
	badDirectory  = "is a zip archive whose directory does not fit it"
	longDirectory = 4 << 20
)

// judgeZip checks that the end record ends the file, that the directory ends where the end record
// begins, and that each entry lies before the directory.
func judgeZip(in input) (Result, error) {
	if in.size < zipEndLen {
		return in.incomplete(noEnd), nil
	}
	for _, n := range []int64{zipEndLen, shortTail, longestTail} {
		n = min(n, in.size)
		tail, err := in.read(in.size-n, n)
		if err != nil {
			return unknown, err
		}
		for i := bytes.LastIndex(tail, []byte(zipEnd)); i >= 0; i = bytes.LastIndex(tail[:i], []byte(zipEnd)) {
			if len(tail)-i < zipEndLen {
				continue
			}
			end := tail[i:]
			if comment := int(binary.LittleEndian.Uint16(end[20:])); comment != len(end)-zipEndLen {
				continue // the signature is part of other data
			}
			return judgeDirectory(in, in.size-int64(len(end)), end)
		}
	}
	return in.incomplete(noEnd), nil
}

// directory is the position of the directory of a zip archive.
type directory struct {
	entries, size, offset uint64
	end                   int64 // start of the records after the directory
}

func judgeDirectory(in input, at int64, end []byte) (Result, error) {
	le := binary.LittleEndian
	d := directory{uint64(le.Uint16(end[10:])), uint64(le.Uint32(end[12:])), uint64(le.Uint32(end[16:])), at}
	if d.entries == math.MaxUint16 || d.size == math.MaxUint32 || d.offset == math.MaxUint32 || in.has64(at) {
		var ok bool
		var err error
		if d, ok, err = in.end64(at); err != nil {
			return unknown, err
		} else if !ok {
			return in.incomplete(badDirectory), nil
		}
	}
	if d.offset > uint64(d.end) || d.size > uint64(d.end) || d.offset+d.size > uint64(d.end) || d.entries > d.size/zipEntryLen {
		return in.incomplete(badDirectory), nil
	}
	if d.offset+d.size < uint64(d.end) {
		return unknown, nil // several archives in one file, as torch.distributed.checkpoint writes them
	}
	if d.entries == 0 {
		return in.incomplete(badDirectory), nil // the file begins with an entry
	}
	if d.size > longDirectory {
		first, err := in.read(int64(d.offset), zipEntryLen)
		if err != nil || string(first[:4]) != zipEntry {
			return in.incomplete(badDirectory), err
		}
		return whole, nil
	}
	p, err := in.read(int64(d.offset), int64(d.size))
	if err != nil {
		return unknown, err
	}
	for range d.entries {
		if len(p) < zipEntryLen || string(p[:4]) != zipEntry {
			return in.incomplete(badDirectory), nil
		}
		packed, local := uint64(le.Uint32(p[20:])), uint64(le.Uint32(p[42:]))
		n := zipEntryLen + int(le.Uint16(p[28:])) + int(le.Uint16(p[30:])) + int(le.Uint16(p[32:]))
		fits := local == math.MaxUint32 || packed == math.MaxUint32 || local+packed <= d.offset
		if n > len(p) || !fits {
			return in.incomplete(badDirectory), nil
		}
		p = p[n:]
	}
	if len(p) > 0 {
		return in.incomplete(badDirectory), nil
	}
	return whole, nil
}

// has64 reports whether the locator of a zip64 end record precedes the end record.
func (in input) has64(at int64) bool {
	if at < zip64LocLen {
		return false
	}
	p, err := in.read(at-zip64LocLen, 4)
	return err == nil && string(p) == zip64Locator
}

// end64 reads the zip64 end record that belongs to the end record at at.
func (in input) end64(at int64) (d directory, ok bool, err error) {
	if !in.has64(at) {
		return d, false, nil
	}
	le := binary.LittleEndian
	locator, err := in.read(at-zip64LocLen, zip64LocLen)
	if err != nil {
		return d, false, err
	}
	off := le.Uint64(locator[8:])
	last := at - zip64LocLen - zip64EndLen
	if last < 0 || off > uint64(last) {
		return d, false, nil
	}
	p, err := in.read(last, zip64EndLen) // without possible extensions; off is wrong after another archive
	if err == nil && string(p[:4]) == zip64End {
		off = uint64(last)
	} else if err == nil {
		p, err = in.read(int64(off), zip64EndLen)
	}
	if err != nil {
		return d, false, err
	}
	length := le.Uint64(p[4:])
	if string(p[:4]) != zip64End || length > math.MaxInt32 || int64(off)+12+int64(length) != at-zip64LocLen {
		return d, false, nil
	}
	return directory{le.Uint64(p[32:]), le.Uint64(p[40:]), le.Uint64(p[48:]), int64(off)}, true, nil
}

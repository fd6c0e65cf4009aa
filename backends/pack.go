package backends

import (
	"encoding/binary"
	"iter"
	"time"
)

// packed are objects in a fraction of the memory: those of a page take some 60 bytes each, and 200 as values.
type packed struct {
	text []byte
	n    int
}

// pack packs objects. Each is
//
//	flags byte                     packedWhole, packedTimed
//	shared, length uvarint, bytes  the key: how much of the previous one it repeats, and the rest
//	size varint
//	version, algorithm, value      the latter two of the checksum; each a length and bytes
//	seconds, nanos varint          the modification time; with packedTimed
func pack(objects []Object) packed {
	p := packed{text: make([]byte, 0, 64*len(objects)), n: len(objects)}
	last := ""
	for _, obj := range objects {
		flags := byte(0)
		if obj.Whole {
			flags |= packedWhole
		}
		if !obj.ModTime.IsZero() {
			flags |= packedTimed
		}
		shared := 0
		for shared < min(len(last), len(obj.Key)) && last[shared] == obj.Key[shared] {
			shared++
		}
		p.text = binary.AppendUvarint(append(p.text, flags), uint64(shared))
		p.add(obj.Key[shared:])
		p.text = binary.AppendVarint(p.text, obj.Size)
		p.add(string(obj.Version))
		p.add(string(obj.Sum.Algorithm))
		p.add(obj.Sum.Value)
		if flags&packedTimed != 0 {
			p.text = binary.AppendVarint(p.text, obj.ModTime.Unix())
			p.text = binary.AppendVarint(p.text, int64(obj.ModTime.Nanosecond()))
		}
		last = obj.Key
	}
	return p
}

const (
	packedWhole = 1 << iota
	packedTimed
)

func (p *packed) add(text string) {
	p.text = append(binary.AppendUvarint(p.text, uint64(len(text))), text...)
}

// all yields the objects. Their times are in UTC.
func (p packed) all() iter.Seq[Object] {
	return func(yield func(Object) bool) {
		rest, key := p.text, []byte(nil)
		number := func() int {
			n, width := binary.Uvarint(rest)
			rest = rest[width:]
			return int(n)
		}
		signed := func() int64 {
			n, width := binary.Varint(rest)
			rest = rest[width:]
			return n
		}
		next := func() []byte {
			n := number()
			text := rest[:n]
			rest = rest[n:]
			return text
		}
		for range p.n {
			flags := rest[0]
			rest = rest[1:]
			key = append(key[:number()], next()...)
			obj := Object{Key: string(key), Size: signed(), Version: Version(next()), Whole: flags&packedWhole != 0}
			obj.Sum = Checksum{Algorithm: Algorithm(next()), Value: string(next())}
			if flags&packedTimed != 0 {
				seconds := signed()
				obj.ModTime = time.Unix(seconds, signed()).UTC()
			}
			if !yield(obj) {
				return
			}
		}
	}
}

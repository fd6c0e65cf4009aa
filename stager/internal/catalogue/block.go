package catalogue

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"hash/maphash"
	"math"
	"time"

	"github.com/stager-dev/stager/backends"
)

// PerBlock is the number of objects in a block.
const PerBlock = 32

// A block is a CRC-32C of the rest, and its objects. An object is
//
//	flags byte                     whole, sumIsVersion, timed, summed
//	shared, length uvarint, bytes  the key: how much of the previous one it repeats, and the rest
//	size uvarint
//	version text                   see appendText
//	algorithm, value text          the checksum; with summed
//	seconds, nanos varint          the modification time; with timed
const (
	flagWhole        = 1 << iota // backends.Object.Whole
	flagSumIsVersion             // the checksum is the MD5 that is also the version
	flagTimed                    // there is a modification time
	flagSummed                   // there is a checksum other than the version
	flagsEnd
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const sumLength = 4

var errDamaged = errors.New("the block does not match its checksum")

// appendObject appends an object that follows one with the key last.
func appendObject(b []byte, last string, obj backends.Object) []byte {
	at := len(b)
	b = append(b, 0)
	shared := 0
	for shared < min(len(last), len(obj.Key)) && last[shared] == obj.Key[shared] {
		shared++
	}
	b = binary.AppendUvarint(b, uint64(shared))
	b = binary.AppendUvarint(b, uint64(len(obj.Key)-shared))
	b = append(b, obj.Key[shared:]...)
	b = binary.AppendUvarint(b, uint64(obj.Size))
	b = appendText(b, string(obj.Version))
	switch {
	case obj.Sum.Algorithm == backends.MD5 && obj.Sum.Value == string(obj.Version):
		b[at] |= flagSumIsVersion
	case obj.Sum != backends.Checksum{}:
		b[at] |= flagSummed
		b = appendText(b, string(obj.Sum.Algorithm))
		b = appendText(b, obj.Sum.Value)
	}
	if !obj.ModTime.IsZero() {
		b[at] |= flagTimed
		b = binary.AppendVarint(b, obj.ModTime.Unix())
		b = binary.AppendVarint(b, int64(obj.ModTime.Nanosecond()))
	}
	if obj.Whole {
		b[at] |= flagWhole
	}
	return b
}

// appendText appends a text, in half the bytes if it is hexadecimal.
func appendText(b []byte, text string) []byte {
	if packed, ok := appendHex(binary.AppendUvarint(b, uint64(len(text)/2)<<1|1), text); ok {
		return packed
	}
	return append(binary.AppendUvarint(b, uint64(len(text))<<1), text...)
}

// appendHex appends the bytes of a text in lower-case hexadecimal digits.
func appendHex(b []byte, text string) ([]byte, bool) {
	if text == "" || len(text)%2 != 0 {
		return nil, false
	}
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return nil, false
		}
	}
	b, err := hex.AppendDecode(b, []byte(text))
	return b, err == nil
}

// seal stores the checksum of a block in its first bytes.
func seal(block []byte) {
	binary.LittleEndian.PutUint32(block, crc32.Checksum(block[sumLength:], castagnoli))
}

// seed is that of this process. Another process that can write to a file cannot guess it.
var seed = maphash.MakeSeed()

// sum returns what distinguishes a block from any other that another process puts in its place. The
// checksum in the block itself protects from damage only.
func sum(block []byte) uint64 { return maphash.Bytes(seed, block) }

// decode returns the n objects of a block.
func decode(block []byte, n int) ([]backends.Object, error) {
	if len(block) < sumLength || binary.LittleEndian.Uint32(block) != crc32.Checksum(block[sumLength:], castagnoli) {
		return nil, errDamaged
	}
	d := decoder{rest: block[sumLength:]}
	objects := make([]backends.Object, n)
	last := ""
	for i := range objects {
		objects[i] = d.object(last)
		last = objects[i].Key
	}
	if d.bad || len(d.rest) > 0 {
		return nil, errDamaged
	}
	return objects, nil
}

// decoder reads a block. After an error it returns zero values and sets bad.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) fail() { d.rest, d.bad = nil, true }

func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.rest)) {
		d.fail()
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) uvarint() uint64 {
	n, width := binary.Uvarint(d.rest)
	if width <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[width:]
	return n
}

func (d *decoder) varint() int64 {
	n := d.uvarint()
	return int64(n>>1) ^ -int64(n&1)
}

func (d *decoder) text() string {
	n := d.uvarint()
	b := d.bytes(n >> 1)
	if n&1 == 1 {
		return hex.EncodeToString(b)
	}
	return string(b)
}

func (d *decoder) object(last string) (obj backends.Object) {
	flags := d.bytes(1)
	shared := d.uvarint()
	suffix := d.bytes(d.uvarint())
	size := d.uvarint()
	if d.bad || shared > uint64(len(last)) || size > math.MaxInt64 || flags[0] >= flagsEnd {
		d.fail()
		return obj
	}
	key := make([]byte, 0, int(shared)+len(suffix))
	obj.Key = string(append(append(key, last[:shared]...), suffix...))
	obj.Size = int64(size)
	obj.Whole = flags[0]&flagWhole != 0
	obj.Version = backends.Version(d.text())
	if flags[0]&flagSumIsVersion != 0 {
		obj.Sum = backends.Checksum{Algorithm: backends.MD5, Value: string(obj.Version)}
	}
	if flags[0]&flagSummed != 0 {
		obj.Sum = backends.Checksum{Algorithm: backends.Algorithm(d.text()), Value: d.text()}
	}
	if flags[0]&flagTimed != 0 {
		seconds, nanos := d.varint(), d.varint()
		obj.ModTime = time.Unix(seconds, nanos).UTC()
	}
	return obj
}

package format

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
)

// legacyMagic is the start of a torch.save file of the time before zip archives: a pickled
// number.
const legacyMagic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e"

// pickleLimit is the maximum number of opcodes read from one pickle.
const pickleLimit = 1 << 20

// ended is the result of scanning a pickle.
type ended int

const (
	atStop ended = iota
	brokeOff
	notUnderstood
)

// judgePickle checks a single pickle, which ends with the opcode STOP.
func judgePickle(in input) (Result, error) {
	if in.head[0] != 0x80 || len(in.head) > 1 && (in.head[1] < 2 || in.head[1] > 5) {
		return unknown, nil
	}
	s, how, err := in.pickle(0)
	if err != nil || how == notUnderstood || s.raw {
		return unknown, err // joblib writes the bytes of arrays between the opcodes
	}
	if how == brokeOff {
		return in.incomplete("is a pickle that breaks off"), nil
	}
	if s.at != in.size {
		return unknown, nil
	}
	return whole, nil
}

// judgeLegacy checks five pickles (magic, version, system, object, keys), followed by the bytes
// of the storages. Only the classes in the pickle know the lengths of the storages.
func judgeLegacy(in input) (Result, error) {
	var at int64
	for range 5 {
		if at >= in.size {
			return in.incomplete("is a file of torch.save that breaks off"), nil
		}
		s, how, err := in.pickle(at)
		if err != nil || how == notUnderstood {
			return unknown, err
		}
		if how == brokeOff {
			return in.incomplete("is a file of torch.save that breaks off"), nil
		}
		at = s.at
	}
	return unknown, nil
}

// scan reads the opcodes of a pickle.
type scan struct {
	in    input
	at    int64
	ops   int
	raw   bool
	err   error
	short bool
	buf   *bufio.Reader
	bufAt int64
}

func (in input) pickle(at int64) (*scan, ended, error) {
	s := &scan{in: in, at: at}
	for ; s.ops < pickleLimit; s.ops++ {
		op := s.bytes(1)
		if s.err != nil || s.short {
			return s, brokeOff, s.err
		}
		if op[0] == '.' {
			return s, atStop, nil
		}
		if !s.argument(op[0]) {
			return s, notUnderstood, s.err
		}
		if s.err != nil || s.short {
			return s, brokeOff, s.err
		}
	}
	return s, notUnderstood, nil
}

// bytes returns the next n bytes. n must be small.
func (s *scan) bytes(n int64) []byte {
	if n > s.in.size-s.at {
		s.short = true
		return nil
	}
	if s.buf == nil || s.bufAt != s.at {
		s.buf, s.bufAt = bufio.NewReaderSize(io.NewSectionReader(s.in.r, s.at, s.in.size-s.at), 4<<10), s.at
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(s.buf, p); err != nil {
		s.err = err
		return nil
	}
	s.at, s.bufAt = s.at+n, s.bufAt+n
	return p
}

// skip skips n bytes. It detects joblib's wrapper of arrays in short strings.
func (s *scan) skip(n uint64) {
	if n > uint64(s.in.size-s.at) {
		s.short = true
		return
	}
	if n > 128 {
		s.at += int64(n)
		return
	}
	s.raw = s.raw || bytes.Contains(s.bytes(int64(n)), []byte("NumpyArrayWrapper"))
}

func (s *scan) line() {
	for range 4 << 10 {
		p := s.bytes(1)
		if s.err != nil || s.short || p[0] == '\n' {
			return
		}
	}
	s.err = io.ErrNoProgress
}

// fixed are the lengths of arguments with a fixed size.
var fixed = map[byte]int64{
	'K': 1, 'M': 2, 'J': 4, 'G': 8, 'h': 1, 'j': 4, 'q': 1, 'r': 4, 0x80: 1, 0x82: 1, 0x83: 2, 0x84: 4, 0x95: 8,
}

// argument skips the argument of an opcode. It returns false when the opcode is unknown.
func (s *scan) argument(op byte) bool {
	if n, ok := fixed[op]; ok {
		s.bytes(n)
		return true
	}
	length := func(n int64) {
		var p [8]byte
		copy(p[:], s.bytes(n))
		if s.err == nil && !s.short {
			s.skip(binary.LittleEndian.Uint64(p[:]))
		}
	}
	switch op {
	case 'U', 'C', 0x8a, 0x8c:
		length(1)
	case 'X', 'T', 'B', 0x8b:
		length(4)
	case 0x8d, 0x8e, 0x96:
		length(8)
	case 'c', 'i':
		before := s.at
		s.line()
		s.line()
		if n := s.at - before; s.err == nil && !s.short && n < 256 {
			p, err := s.in.read(before, n)
			s.raw, s.err = s.raw || bytes.Contains(p, []byte("NumpyArrayWrapper")), err
		}
	case 'F', 'I', 'L', 'S', 'V', 'P', 'g', 'p':
		s.line()
	case '(', '0', '1', '2', 'N', 'Q', 'R', 'a', 'b', 'd', '}', 'e', 'l', ']', 'o', 's', 't', ')', 'u',
		0x81, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8f, 0x90, 0x91, 0x92, 0x93, 0x94, 0x97, 0x98:
	default:
		return false
	}
	return true
}

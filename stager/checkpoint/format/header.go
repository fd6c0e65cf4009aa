package format

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
)

// Errors of dataEnd, as the end of a sentence about a file.
var (
	errNoObject   = errors.New("has a header that is not a JSON object")
	errBadOffsets = errors.New("has a header whose offsets are invalid")
)

// dataEnd returns the largest end offset that the header of a safetensors file records. The
// header must be a JSON object, and its members must be objects. data_offsets must be two
// integers in order; a member may lack it.
//
// It scans the text once and does not copy it. encoding/json took several percent of the CPU time
// of an upload, because the header of a model of many small tensors is long.
func dataEnd(header []byte) (end int64, err error) {
	s := headerScanner{text: header}
	if !s.object(1, (*headerScanner).tensor) || s.next() != 0 || s.at < len(s.text) {
		return 0, errNoObject
	}
	if s.invalid {
		return 0, errBadOffsets
	}
	return s.end, nil
}

// headerScanner is a position in the header of a safetensors file. Its methods report whether
// the text is JSON, and move past what they name.
type headerScanner struct {
	text    []byte
	at      int
	end     int64 // largest end offset so far
	invalid bool  // some offsets are not two integers in order
}

// mostNested limits the depth of nested values. Headers have a depth of 3.
const mostNested = 1000

// next skips white space and returns the byte after it, or 0 at the end of the text.
func (s *headerScanner) next() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// consume moves past c if it is the next byte after white space.
func (s *headerScanner) consume(c byte) bool {
	if s.next() != c {
		return false
	}
	s.at++
	return true
}

// object calls member for each member of an object, with the scanner at the member's value.
func (s *headerScanner) object(depth int, member func(s *headerScanner, key []byte, depth int) bool) bool {
	if depth > mostNested || !s.consume('{') {
		return false
	}
	if s.consume('}') {
		return true
	}
	for {
		key, ok := s.quoted()
		if !ok || !s.consume(':') || !member(s, key, depth+1) {
			return false
		}
		if !s.consume(',') {
			return s.consume('}')
		}
	}
}

// tensor is a member of the header.
func (s *headerScanner) tensor(key []byte, depth int) bool {
	if keyIs(key, "__metadata__") {
		return s.value(depth)
	}
	if s.next() != '{' {
		s.invalid = true
		return s.value(depth)
	}
	return s.object(depth, (*headerScanner).field)
}

// field is a member of a tensor.
func (s *headerScanner) field(key []byte, depth int) bool {
	if !keyIs(key, "data_offsets") {
		return s.value(depth)
	}
	s.next()
	from := s.at
	if s.consume('[') {
		begin, first := s.integer()
		comma := s.consume(',')
		end, second := s.integer()
		if s.consume(']') && first && comma && second && begin <= end {
			s.end = max(s.end, end)
			return true
		}
	}
	s.at, s.invalid = from, true
	return s.value(depth)
}

// integer returns a number that is not negative and has no fraction or exponent.
func (s *headerScanner) integer() (n int64, ok bool) {
	minus := s.consume('-')
	if !minus {
		s.next()
	}
	from := s.at
	for ; s.at < len(s.text) && '0' <= s.text[s.at] && s.text[s.at] <= '9'; s.at++ {
		digit := int64(s.text[s.at] - '0')
		if n > (math.MaxInt64-digit)/10 {
			return 0, false
		}
		n = 10*n + digit
	}
	digits := s.at - from
	return n, (digits == 1 || digits > 1 && s.text[from] != '0') && (!minus || n == 0)
}

// value is any value.
func (s *headerScanner) value(depth int) bool {
	switch c := s.next(); c {
	case '{':
		return s.object(depth, func(s *headerScanner, _ []byte, depth int) bool { return s.value(depth) })
	case '[':
		return s.array(depth)
	case '"':
		_, ok := s.quoted()
		return ok
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	}
	return s.number()
}

func (s *headerScanner) array(depth int) bool {
	if depth > mostNested || !s.consume('[') {
		return false
	}
	if s.consume(']') {
		return true
	}
	for {
		if !s.value(depth + 1) {
			return false
		}
		if !s.consume(',') {
			return s.consume(']')
		}
	}
}

func (s *headerScanner) word(word string) bool {
	if !bytes.HasPrefix(s.text[s.at:], []byte(word)) {
		return false
	}
	s.at += len(word)
	return true
}

func (s *headerScanner) number() bool {
	if s.peek() == '-' {
		s.at++
	}
	if s.peek() == '0' {
		s.at++
	} else if !s.digits() {
		return false
	}
	if s.peek() == '.' {
		s.at++
		if !s.digits() {
			return false
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.at++
		if c := s.peek(); c == '+' || c == '-' {
			s.at++
		}
		return s.digits()
	}
	return true
}

// peek returns the byte at the position, or 0 at the end of the text.
func (s *headerScanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

// digits is one digit or more.
func (s *headerScanner) digits() bool {
	from := s.at
	for '0' <= s.peek() && s.peek() <= '9' {
		s.at++
	}
	return s.at > from
}

// quoted returns the text of a string, without its quotation marks and with its escapes.
func (s *headerScanner) quoted() (text []byte, ok bool) {
	if !s.consume('"') {
		return nil, false
	}
	from := s.at
	for i, c := range s.text[from:] {
		switch {
		case c == '"':
			s.at = from + i + 1
			return s.text[from : from+i], true
		case c < ' ':
			return nil, false
		case c == '\\':
			s.at = from + i
			return s.escaped(from)
		}
	}
	return nil, false
}

// escaped returns the text of a string that begins at from, and has its first escape at the
// position.
func (s *headerScanner) escaped(from int) (text []byte, ok bool) {
	for s.at < len(s.text) {
		c := s.text[s.at]
		s.at++
		switch {
		case c == '"':
			return s.text[from : s.at-1], true
		case c < ' ':
			return nil, false
		case c == '\\':
			e := s.peek()
			s.at++
			if e == 'u' {
				for range 4 {
					if bytes.IndexByte([]byte("0123456789abcdefABCDEF"), s.peek()) < 0 {
						return nil, false
					}
					s.at++
				}
			} else if e == 0 || bytes.IndexByte([]byte(`"\/bfnrt`), e) < 0 {
				return nil, false
			}
		}
	}
	return nil, false
}

// keyIs compares a key, which may have escapes, with a name.
func keyIs(key []byte, name string) bool {
	if len(key) <= len(name) || bytes.IndexByte(key, '\\') < 0 {
		return string(key) == name
	}
	var text string
	quoted := append(append([]byte{'"'}, key...), '"')
	return json.Unmarshal(quoted, &text) == nil && text == name
}

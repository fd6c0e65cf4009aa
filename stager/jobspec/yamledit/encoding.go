package yamledit

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// encoding refuses encodings other than UTF-8, and characters that YAML does not allow.
func (p *parser) encoding() {
	if printableASCII(p.src) {
		return
	}
	if utf8.Valid(p.src) {
		ascii, returns := true, false
		for i, c := range p.src {
			if c < ' ' && c != '\n' && c != '\t' && c != '\r' {
				p.fail(i, "a control character (U+%04X) is not allowed; remove it", c)
			}
			ascii = ascii && c < utf8.RuneSelf
			returns = returns || c == '\r'
		}
		if !ascii || returns {
			p.lineEndings()
		}
		return
	}
	for i := 0; ; {
		r, size := utf8.DecodeRune(p.src[i:])
		if r == utf8.RuneError && size == 1 {
			p.fail(i, "the text is not UTF-8; save the file in that encoding")
		}
		i += size
	}
}

// printableASCII reports whether a text has only printable ASCII characters, tabs and line feeds. It
// examines eight bytes at once, because nearly all files have no others.
func printableASCII(text []byte) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for ; len(text) >= 8; text = text[8:] {
		word := binary.LittleEndian.Uint64(text)
		// The highest bit of a byte is set if it is set in word, or if subtracting a blank borrows.
		if (word|(word-ones*' '))&high != 0 && !plainBytes(text[:8]) {
			return false
		}
	}
	return plainBytes(text)
}

func plainBytes(text []byte) bool {
	for _, c := range text {
		if c >= utf8.RuneSelf || c < ' ' && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

// lineEndings refuses characters that only some readers treat as line breaks.
func (p *parser) lineEndings() {
	for _, odd := range []string{"\u0085", "\u2028", "\u2029"} {
		if i := bytes.Index(p.src, []byte(odd)); i >= 0 {
			p.fail(i, "an invisible line separator (%U) is not allowed; remove it", []rune(odd)[0])
		}
	}
	for i := 0; ; i++ {
		next := bytes.IndexByte(p.src[i:], '\r')
		if next < 0 {
			return
		}
		if i += next; p.byteAt(i+1) != '\n' {
			p.fail(i, "a carriage return has no line feed after it; remove it")
		}
	}
}

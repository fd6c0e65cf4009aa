package yamledit

import (
	"bytes"
	"unicode/utf8"
)

// encoding refuses encodings other than UTF-8, and characters that YAML does not allow.
func (p *parser) encoding() {
	if utf8.Valid(p.src) {
		ascii, returns := true, false
		for i, c := range p.src {
			if c < ' ' && c != '\n' && c != '\t' && c != '\r' {
				p.fail(i, "a control character (U+%04X) stands here; remove it", c)
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
			p.fail(i, "this is not UTF-8; save the file in that encoding")
		}
		i += size
	}
}

// lineEndings refuses characters that only some readers treat as line breaks.
func (p *parser) lineEndings() {
	for _, odd := range []string{"\u0085", "\u2028", "\u2029"} {
		if i := bytes.Index(p.src, []byte(odd)); i >= 0 {
			p.fail(i, "an invisible line separator (%U) stands here; remove it", []rune(odd)[0])
		}
	}
	for i := 0; ; i++ {
		next := bytes.IndexByte(p.src[i:], '\r')
		if next < 0 {
			return
		}
		if i += next; p.byteAt(i+1) != '\n' {
			p.fail(i, "a carriage return stands here without a line feed; remove it")
		}
	}
}

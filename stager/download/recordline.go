package download

import "bytes"

// fileLine is a line of the record about a file, as bytes of the line.
type fileLine struct {
	path, version        []byte
	size, mtime, changed int64
	inode                uint64
}

// plainLine decodes a line about a file that json has encoded without escapes, as nearly all are; ok is
// false for every other line. A record may have millions: json.Unmarshal takes ten times as long and
// allocates.
func plainLine(raw []byte) (f fileLine, ok bool) {
	rest, ok := bytes.CutPrefix(raw, []byte(`{`))
	in := plainFields{rest: rest, bad: !ok}
	f.path = in.text(`"path":"`)
	f.size = in.number(`,"size":`)
	f.mtime = in.number(`,"mtime":`)
	f.version = in.text(`,"version":"`)
	f.inode = uint64(in.number(`,"ino":`))
	f.changed = in.number(`,"ctime":`)
	return f, !in.bad && len(f.path) > 0 && string(in.rest) == "}"
}

// plainFields decodes the fields of an object in a fixed order. Each may be missing.
type plainFields struct {
	rest []byte
	bad  bool
}

func (p *plainFields) field(name string) bool {
	rest, is := bytes.CutPrefix(p.rest, []byte(name))
	if is {
		p.rest = rest
	}
	return is
}

// text decodes a text; name includes its first quote.
func (p *plainFields) text(name string) []byte {
	if !p.field(name) {
		return nil
	}
	for i, c := range p.rest {
		switch {
		case c == '"':
			text := p.rest[:i]
			p.rest = p.rest[i+1:]
			return text
		case c < ' ' || c > '~' || c == '\\':
			p.bad = true
			return nil
		}
	}
	p.bad = true
	return nil
}

// number decodes a number that is not negative and fits.
func (p *plainFields) number(name string) (n int64) {
	if !p.field(name) {
		return 0
	}
	digits := 0
	for ; digits < len(p.rest) && p.rest[digits] >= '0' && p.rest[digits] <= '9'; digits++ {
		n = 10*n + int64(p.rest[digits]-'0')
	}
	p.bad = p.bad || digits == 0 || digits > 18 && n < 1e18 || digits > 19 || digits > 1 && p.rest[0] == '0'
	p.rest = p.rest[digits:]
	return n
}

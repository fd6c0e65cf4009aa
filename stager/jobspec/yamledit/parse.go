package yamledit

import (
	"bytes"
	"fmt"
)

// depthMax is the maximum nesting depth. The API server's own limit is far lower.
const depthMax = 200

// Parse parses a document and stores its tree in Root.
func Parse(d *Document) error { return new(Reader).Parse(d) }

// Reader parses documents one after another into the same memory. A tree is invalid after the next
// call of Parse.
type Reader struct{ parser }

// Parse parses a document and stores its tree in Root.
func (r *Reader) Parse(d *Document) (err error) {
	p := &r.parser
	*p = parser{src: d.Text, doc: d, slabs: p.slabs, pairs: p.pairs[:0], items: p.items[:0], allPairs: p.allPairs[:0], allItems: p.allItems[:0]}
	defer func() {
		if r := recover(); r != nil {
			stop, ours := r.(*SyntaxError)
			if !ours {
				panic(r)
			}
			err = stop
		}
	}()
	d.aliased = nil
	p.encoding()
	if bytes.HasPrefix(p.src, mark) {
		p.at = len(mark)
		p.bol = p.at
	}
	p.prologue()
	p.toToken()
	if p.ended() {
		return nil
	}
	root := p.node(-1, false)
	p.toToken()
	if !p.ended() {
		p.fail(p.at, "unexpected text after the document; check the indentation of this line")
	}
	p.epilogue()
	d.Root = root
	return nil
}

// parser is a single-pass parser. Its functions advance at past what they read. They panic with a
// *SyntaxError, which Parse recovers.
type parser struct {
	src   []byte
	doc   *Document
	at    int
	bol   int // start of the current line
	depth int
	colon int // of the plain key that isKey has found

	slab  []Node   // unused nodes
	slabs [][]Node // all nodes, allocated in blocks
	used  int      // number of slabs in use for this document

	// Children of the mappings and sequences that are still open.
	pairs []Pair
	items []*Node

	// Children of the closed ones.
	allPairs []Pair
	allItems []*Node
}

// gathered is the number of children of the mappings and sequences that are open around a node.
type gathered struct{ pairs, items int }

// gather opens a mapping or sequence, which close closes.
func (p *parser) gather() gathered { return gathered{len(p.pairs), len(p.items)} }

// close stores the children of n, which gather has opened.
func (p *parser) close(n *Node, g gathered) {
	n.Pairs, p.pairs = keep(&p.allPairs, p.pairs[g.pairs:]), p.pairs[:g.pairs]
	n.Items, p.items = keep(&p.allItems, p.items[g.items:]), p.items[:g.items]
}

// keep returns a copy of children at the end of a block. If the block is full it starts another.
func keep[T any](block *[]T, children []T) []T {
	from, to := len(*block), len(*block)+len(children)
	if to == from {
		return nil
	}
	if to > cap(*block) {
		*block = make([]T, 0, max(len(children), 2*cap(*block), 64))
		from, to = 0, len(children)
	}
	*block = append(*block, children...)
	return (*block)[from:to:to]
}

// nodeBytes is the approximate length of text per node.
const nodeBytes = 12

// newNode returns a Null at an offset.
func (p *parser) newNode(at int) *Node {
	if len(p.slab) == 0 {
		if p.used == len(p.slabs) {
			p.slabs = append(p.slabs, make([]Node, min(8+(len(p.src)-p.at)/nodeBytes, 64)))
		} else {
			clear(p.slabs[p.used])
		}
		p.slab = p.slabs[p.used]
		p.used++
	}
	n := &p.slab[0]
	p.slab = p.slab[1:]
	n.doc, n.Start, n.End = p.doc, at, at
	return n
}

func (p *parser) fail(at int, format string, args ...any) {
	line, column := p.doc.Position(at)
	panic(&SyntaxError{line, column, fmt.Sprintf(format, args...)})
}

// prologue skips directives and the --- before the content.
func (p *parser) prologue() {
	for p.at < len(p.src) {
		line := p.line()
		switch {
		case separator(line, "---"):
			p.at += len("---")
			return
		case len(trimBlanks(line)) == 0, line[0] == '#', line[0] == '%':
			p.nextLine()
		default:
			return
		}
	}
}

// epilogue refuses everything but comments after the ... marker.
func (p *parser) epilogue() {
	for p.at < len(p.src) {
		line := p.line()
		if t := trimBlanks(line); len(t) > 0 && t[0] != '#' && !separator(line, "...") {
			p.fail(p.at, "unexpected text after the end of the document (...); start another document with ---")
		}
		p.nextLine()
	}
}

// line returns the rest of the line, without its line break.
func (p *parser) line() []byte {
	rest := p.src[p.at:]
	if end := bytes.IndexByte(rest, '\n'); end >= 0 {
		rest = rest[:end]
	}
	return bytes.TrimSuffix(rest, []byte("\r"))
}

// nextLine advances to the start of the next line.
func (p *parser) nextLine() {
	if p.peek() == '\n' {
		p.at++
	} else if end := bytes.IndexByte(p.src[p.at:], '\n'); end >= 0 {
		p.at += end + 1
	} else {
		p.at = len(p.src)
	}
	p.bol = p.at
}

func (p *parser) peek() byte { return p.byteAt(p.at) }

// byteAt returns the byte at an offset, or 0 after the end.
func (p *parser) byteAt(i int) byte {
	if i < len(p.src) {
		return p.src[i]
	}
	return 0
}

func (p *parser) column() int { return p.at - p.bol }

// ended reports whether the document ends here.
func (p *parser) ended() bool {
	if p.at >= len(p.src) {
		return true
	}
	c := p.src[p.at]
	return p.at == p.bol && (c == '.' && separator(p.line(), "...") || c == '-' && separator(p.line(), "---"))
}

// blanks skips spaces and tabs.
func (p *parser) blanks() {
	at := p.at
	for at < len(p.src) && blank(p.src[at]) {
		at++
	}
	p.at = at
}

// lineBreaks reports whether the line ends here.
func (p *parser) lineBreaks() bool {
	c := p.peek()
	return p.at >= len(p.src) || c == '\n' || c == '\r' && p.byteAt(p.at+1) == '\n'
}

// lineEnds reports whether the line ends here, apart from a comment.
func (p *parser) lineEnds() bool {
	return p.lineBreaks() || p.peek() == '#' && (p.at == p.bol || blank(p.src[p.at-1]))
}

func blank(c byte) bool { return c == ' ' || c == '\t' }

// trimBlanks returns a text without trailing blanks.
func trimBlanks(text []byte) []byte {
	for len(text) > 0 && blank(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	return text
}

// space reports whether a byte separates tokens; 0 is the end of the text.
func space(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == 0 }

// toToken skips blanks, comments and line breaks.
func (p *parser) toToken() {
	for p.at < len(p.src) {
		p.blanks()
		if p.peek() > '#' || !p.lineEnds() || p.at >= len(p.src) {
			return
		}
		p.nextLine()
		if p.ended() {
			return
		}
	}
}

// toBlockToken is toToken in block style. It reports whether it passed a line break.
func (p *parser) toBlockToken() bool {
	before := p.bol
	p.toToken()
	if p.bol == before {
		return false
	}
	if !p.ended() && bytes.IndexByte(p.src[p.bol:p.at], '\t') >= 0 {
		if c := p.peek(); c != '{' && c != '[' && c != '}' && c != ']' {
			p.fail(p.bol, "this line is indented with a tab; use spaces")
		}
	}
	return true
}

// node parses a value that is indented by more than indent. It starts at the next token. If dashOK
// is true, a sequence may be indented by indent itself, as below a key.
func (p *parser) node(indent int, dashOK bool) *Node {
	if p.depth++; p.depth > depthMax {
		p.fail(p.at, "this is nested more than %d levels deep", depthMax)
	}
	defer func() { p.depth-- }()
	n := p.newNode(p.at)
	sameLine := len(trimBlanks(p.src[p.bol:p.at])) > 0
	if p.toBlockToken() {
		sameLine = false
	}
	for {
		if p.ended() {
			return n
		}
		col := p.column()
		dash := p.peek() == '-' && space(p.byteAt(p.at+1))
		if !sameLine && col <= indent && !(dashOK && dash && col == indent) {
			return n
		}
		if c := p.peek(); c != '&' && c != '!' {
			break
		}
		if p.property(n); p.lineEnds() {
			n.Start, n.End = p.at, p.at
			p.toBlockToken()
			sameLine = false
		} else if p.isKey() {
			p.fail(p.at, "an anchor or tag before a key is not supported; move it after the colon")
		}
	}
	return p.content(n, indent, sameLine)
}

// property parses an anchor or tag and the blanks after it.
func (p *parser) property(n *Node) {
	start := p.at
	if p.peek() == '&' && n.Anchor != "" || p.peek() == '!' && n.tag != "" {
		p.fail(start, "a value has one anchor and one tag at most")
	}
	if p.peek() == '&' {
		n.Anchor = p.anchor(start + 1)
	} else {
		for !space(p.peek()) {
			p.at++
		}
		n.tag = string(p.src[start:p.at])
	}
	n.Start, n.End = p.at, p.at
	p.blanks()
}

// anchor parses the name of an anchor or alias.
func (p *parser) anchor(start int) string {
	for p.at = start; word(p.peek()); p.at++ {
	}
	if c := p.peek(); p.at == start || !space(c) && bytes.IndexByte([]byte(",]}"), c) < 0 {
		p.fail(start, "the name of an anchor may contain only letters, digits, - and _")
	}
	return string(p.src[start:p.at])
}

func word(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '-' || c == '_'
}

// content parses a node after its properties.
func (p *parser) content(n *Node, indent int, sameLine bool) *Node {
	n.Start = p.at
	col := p.column()
	compact := !sameLine || p.afterDash() // a mapping or sequence may start here
	switch c := p.peek(); {
	case c == '-' && space(p.byteAt(p.at+1)):
		if !compact {
			p.fail(p.at, "a list must begin on a line of its own")
		}
		p.sequence(n, col)
	case c == '?' && space(p.byteAt(p.at+1)):
		p.fail(p.at, "keys after a ? are not supported; write key: value")
	case c != '|' && c != '>' && p.isKey():
		if !compact {
			p.fail(p.at, "a key must begin on a line of its own; if this is a text with a colon, quote it")
		}
		p.mapping(n, col)
	case c == '|' || c == '>':
		p.blockScalar(n, indent)
	case c == '[' || c == '{':
		p.flow(n)
		p.behindValue()
	case c == '"' || c == '\'':
		p.quoted(n)
		p.behindValue()
	case c == '*':
		p.alias(n)
		p.behindValue()
	default:
		p.plain(n, indent)
	}
	return n
}

// afterDash reports whether only dashes and blanks precede the position on this line.
func (p *parser) afterDash() bool {
	for _, c := range p.src[p.bol:p.at] {
		if c != ' ' && c != '-' {
			return false
		}
	}
	return true
}

// behindValue refuses unexpected text after a value.
func (p *parser) behindValue() {
	end := p.at
	p.blanks()
	if !p.lineEnds() {
		p.fail(p.at, "unexpected text after a value; a comma, a quote or a # may be missing")
	}
	p.at = end
}

// isKey reports whether a key and its colon are at the current position, on one line.
func (p *parser) isKey() bool {
	switch p.peek() {
	case '"', '\'':
		return quotedKey(p.line())
	case '[', '{', '*', '&', '!', '|', '>', '%', '@', '`', ',', ']', '}', '#':
		return false
	}
	for i, c := range p.src[p.at:] {
		if c > ':' {
			continue
		}
		switch at := p.at + i; c {
		case '\n':
			return false
		case ':':
			if space(p.byteAt(at + 1)) {
				p.colon = at
				return true
			}
		case '#':
			if i > 0 && blank(p.src[at-1]) {
				return false
			}
		}
	}
	return false
}

// quotedKey reports whether a line starts with a key in quotes and its colon.
func quotedKey(line []byte) bool {
	i := 0
	switch line[0] {
	case '"':
		for i = 1; i < len(line) && line[i] != '"'; i++ {
			if line[i] == '\\' {
				i++
			}
		}
	case '\'':
		for i = 1; i < len(line) && line[i] != '\''; i++ {
		}
		for i+1 < len(line) && line[i+1] == '\'' { // a doubled quote is an escaped one
			for i += 2; i < len(line) && line[i] != '\''; i++ {
			}
		}
	}
	for i++; i < len(line) && blank(line[i]); i++ {
	}
	return i < len(line) && line[i] == ':' && (i+1 == len(line) || blank(line[i+1]))
}

func (p *parser) mapping(n *Node, col int) {
	n.Kind = Mapping
	open := p.gather()
	defer p.close(n, open)
	for {
		key := p.newNode(p.at)
		key.Kind = Scalar
		if c := p.peek(); c == '"' || c == '\'' {
			p.quoted(key)
			p.blanks()
		} else {
			p.at = p.colon // isKey was true at this position
			key.End = key.Start + len(trimBlanks(p.src[key.Start:p.at]))
			if key.End == key.Start {
				p.fail(p.at, "a key is missing before the colon")
			}
		}
		p.at++ // skip the colon
		pair := Pair{Key: key, Colon: p.at}
		pair.Value = p.node(col, true)
		p.pairs = append(p.pairs, pair)
		n.End = max(pair.Colon, pair.Value.End)
		p.toBlockToken()
		switch at := p.column(); {
		case p.ended(), at < col:
			return
		case at == col && p.peek() == '-' && space(p.byteAt(p.at+1)):
			return // the next item of the sequence that contains this mapping
		case at > col:
			p.fail(p.at, "this line is indented more than the entry before it; align both")
		case !p.isKey():
			p.fail(p.at, "a key with a colon is expected here")
		}
	}
}

func (p *parser) sequence(n *Node, col int) {
	n.Kind = Sequence
	open := p.gather()
	defer p.close(n, open)
	for {
		dash := p.at
		p.at++
		item := p.node(col, false)
		item.dash = dash
		p.items = append(p.items, item)
		n.End = item.End
		p.toBlockToken()
		at := p.column()
		if p.ended() || at < col || at == col && !(p.peek() == '-' && space(p.byteAt(p.at+1))) {
			return
		}
		if at > col {
			p.fail(p.at, "this line is indented more than the entry before it; align both")
		}
	}
}

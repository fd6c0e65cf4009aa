package yamledit

import (
	"bytes"
	"strings"
)

// quoted parses a single-quoted or double-quoted scalar.
func (p *parser) quoted(n *Node) {
	n.Kind, n.Start = Scalar, p.at
	quote := p.peek()
	for p.at++; ; p.at++ {
		for p.at < len(p.src) && classes[p.src[p.at]] == anywhere {
			p.at++
		}
		switch {
		case p.at >= len(p.src):
			p.fail(n.Start, "this quote is not closed")
		case p.src[p.at] == '\n':
			p.bol = p.at + 1
			if rest := p.src[p.bol:]; separator(rest, "---") || separator(rest, "...") {
				p.fail(n.Start, "this quote is not closed")
			}
		case p.src[p.at] == '\\' && quote == '"':
			if p.at++; p.byteAt(p.at) == '\n' {
				p.at-- // the loop handles the line break
			}
			if p.byteAt(p.at) == '\\' && p.byteAt(p.at+1) == '\n' {
				continue
			}
		case p.src[p.at] == quote:
			if quote == '\'' && p.byteAt(p.at+1) == quote {
				p.at++
				continue
			}
			p.at++
			n.End = p.at
			return
		}
	}
}

// alias parses *name.
func (p *parser) alias(n *Node) {
	if n.Anchor != "" || n.tag != "" {
		p.fail(p.at, "an alias cannot have an anchor or a tag")
	}
	n.Kind, n.Start = Alias, p.at
	n.Anchor = p.anchor(n.Start + 1)
	n.End = p.at
	if p.doc.aliased == nil {
		p.doc.aliased = make(map[string]bool)
	}
	p.doc.aliased[n.Anchor] = true
}

// plain parses a plain scalar. It may span several lines that are indented by more than indent.
func (p *parser) plain(n *Node, indent int) {
	n.Kind, n.Start = Scalar, p.at
	if strings.IndexByte(",[]{}#&*!|>'\"%@`", p.peek()) >= 0 {
		p.fail(p.at, "a text that begins with %c must be quoted", p.peek())
	}
	for {
		comment := false
		line := p.line()
		end := len(line)
		for i := 1; i < len(line); i++ {
			if line[i] == '#' && blank(line[i-1]) {
				end, comment = i, true
				break
			}
			if line[i] == ':' && (i+1 == len(line) || blank(line[i+1])) {
				p.fail(p.at+i, "a colon in the middle of a text; quote the text, or fix the indentation")
			}
		}
		n.End = p.at + len(trimBlanks(line[:end]))
		p.at = n.End
		if comment {
			return
		}
		bol := p.bol
		for p.at < len(p.src) {
			p.nextLine()
			p.blanks()
			if !p.lineBreaks() {
				break
			}
		}
		if p.at >= len(p.src) || p.peek() == '#' || p.column() <= indent ||
			p.column() == 0 && (separator(p.line(), "---") || separator(p.line(), "...")) {
			p.at, p.bol = n.End, bol
			return
		}
		if bytes.IndexByte(p.src[p.bol:p.at], '\t') >= 0 {
			p.fail(p.bol, "this line is indented with a tab; use spaces")
		}
	}
}

// blockScalar parses a block scalar, introduced by | or >. It contains all lines that are indented
// by more than indent. Trailing blank lines belong to it only with the + indicator.
func (p *parser) blockScalar(n *Node, indent int) {
	n.Kind, n.Start, n.in = Scalar, p.at, max(indent, 0)
	margin, keep := 0, false
	header := p.line()
	i := 1
	for ; i < len(header) && !blank(header[i]); i++ {
		switch c := header[i]; {
		case c == '+':
			keep = true
		case c >= '1' && c <= '9':
			margin = max(indent, 0) + int(c-'0')
		case c != '-':
			p.fail(p.at, "a text that begins with %c must be quoted", header[0])
		}
	}
	if rest := bytes.TrimLeft(header[i:], " \t"); len(rest) > 0 && rest[0] != '#' {
		p.fail(p.at+i, "the text must begin on the line after %c", header[0])
	}
	n.End = p.at + len(header)
	p.nextLine()
	for p.at < len(p.src) {
		line := p.line()
		in := len(line) - len(bytes.TrimLeft(line, " "))
		if in == len(line) && (margin == 0 || in <= margin) { // blank
			if keep {
				n.End = p.at + len(line)
			}
			p.nextLine()
			continue
		}
		if margin == 0 {
			if margin = max(in, 1); in <= indent || in < 1 {
				break
			}
		}
		if in < margin {
			break
		}
		n.End = p.at + len(line)
		p.nextLine()
	}
	// The caller continues at the end of the text.
	p.at = n.End
	p.bol = bytes.LastIndexByte(p.src[:p.at], '\n') + 1
}

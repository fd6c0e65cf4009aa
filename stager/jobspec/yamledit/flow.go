package yamledit

import "strings"

// flow parses a flow sequence or flow mapping.
func (p *parser) flow(n *Node) {
	if p.depth++; p.depth > depthMax {
		p.fail(p.at, "this is nested more than %d levels deep", depthMax)
	}
	defer func() { p.depth-- }()
	n.Flow, n.Start = true, p.at
	if next := p.byteAt(p.at + 1); p.peek() == '{' && (next == '{' || next == '%') {
		p.fail(p.at, "{%c begins a template of another program; render the file first, for example with helm template", next)
	}
	closing := byte(']')
	if n.Kind = Sequence; p.peek() == '{' {
		n.Kind, closing = Mapping, '}'
	}
	p.at++
	open := p.gather()
	defer p.close(n, open)
	for {
		p.toFlowToken(n)
		switch c := p.peek(); {
		case c == closing:
			p.at++
			n.End = p.at
			return
		case c == ',':
			p.fail(p.at, "a comma has no value before it; remove it")
		case n.Kind == Mapping:
			p.pairs = append(p.pairs, p.flowPair(n))
		default:
			p.items = append(p.items, p.flowNode(n))
		}
		p.toFlowToken(n)
		switch c := p.peek(); c {
		case ',':
			p.at++
		case closing:
		case ':':
			p.fail(p.at, "a pair in brackets needs braces, as in [{key: value}]")
		default:
			p.fail(p.at, "a comma or %c is missing", closing)
		}
	}
}

// toFlowToken skips to the next token within n.
func (p *parser) toFlowToken(n *Node) {
	p.toToken()
	if p.ended() {
		p.fail(n.Start, "this %c is not closed", p.src[n.Start])
	}
}

func (p *parser) flowPair(parent *Node) Pair {
	key := p.flowNode(parent)
	if key.Kind != Scalar || key.Anchor != "" || key.tag != "" {
		p.fail(key.Start, "a key must be a single value")
	}
	pair := Pair{Key: key, Colon: key.End, Value: p.newNode(key.End)}
	p.toFlowToken(parent)
	if p.peek() != ':' {
		return pair
	}
	p.at++
	pair.Colon = p.at
	p.toFlowToken(parent)
	if c := p.peek(); c == ',' || c == '}' {
		pair.Value.Start, pair.Value.End = pair.Colon, pair.Colon
		return pair
	}
	pair.Value = p.flowNode(parent)
	return pair
}

func (p *parser) flowNode(parent *Node) *Node {
	n := p.newNode(p.at)
	for c := p.peek(); c == '&' || c == '!'; c = p.peek() {
		p.property(n)
		p.toFlowToken(parent)
	}
	switch c := p.peek(); c {
	case '[', '{':
		p.flow(n)
	case '"', '\'':
		p.quoted(n)
	case '*':
		p.alias(n)
	default:
		p.flowPlain(n)
	}
	return n
}

// flowToken reports whether a byte is an indicator in flow style.
func flowToken(c byte) bool { return c == ',' || c == '[' || c == ']' || c == '{' || c == '}' }

// flowPlain parses a plain scalar in flow style.
func (p *parser) flowPlain(n *Node) {
	n.Kind, n.Start = Scalar, p.at
	c, next := p.peek(), p.byteAt(p.at+1)
	if strings.IndexByte(",]}#|>%@`:", c) >= 0 || (c == '-' || c == '?') && (space(next) || flowToken(next)) {
		p.fail(p.at, "a text that begins with %c must be quoted here", c)
	}
	for p.at < len(p.src) {
		c := p.src[p.at]
		if classes[c] == anywhere {
			p.at++
			n.End = p.at
			continue
		}
		if flowToken(c) {
			return
		}
		if next := p.byteAt(p.at + 1); c == ':' && space(next) {
			return
		} else if c == ':' && flowToken(next) {
			p.fail(p.at, "some programs read this colon as a part of the text; add a space after it, or quote the text")
		}
		if c == '#' && space(p.src[p.at-1]) {
			return
		}
		if c == '\n' {
			p.bol = p.at + 1
		}
		p.at++
		if !space(c) {
			n.End = p.at
		}
	}
}

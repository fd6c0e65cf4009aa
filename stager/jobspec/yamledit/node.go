package yamledit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Kind is the kind of a node.
type Kind uint8

// The kinds.
const (
	Null     Kind = iota // no text
	Scalar               // a single value, including an explicit null
	Mapping              // keys and values
	Sequence             // a list
	Alias                // *name
)

// Node is a part of a document. Start and End are the offsets of its text, without an anchor and
// tag; End is exclusive. For a Null both are the offset where the value would start.
type Node struct {
	Kind       Kind
	Flow       bool   // in flow style: brackets or braces
	tag        string // explicit tag as written, or ""
	Start, End int
	Anchor     string // name after &, or after * for an Alias
	Pairs      []Pair // of a Mapping
	Items      []*Node

	doc  *Document
	dash int // offset of the dash of a block sequence item
	in   int // of a block scalar: indentation of the parent
}

// Pair is a key with its value. Colon is the offset after the colon, or the end of the key if there
// is none.
type Pair struct {
	Key, Value *Node
	Colon      int
}

// Document is one document of a file. Text is its complete text, including the --- before it. Line
// is the line of the file where Text starts, from 1.
type Document struct {
	Text []byte
	Line int
	Root *Node // nil before Parse, and for a document without content

	aliased map[string]bool // anchors with an alias
}

// SyntaxError reports text that is not supported and its position, from 1.
type SyntaxError struct {
	Line, Column int
	Text         string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Text)
}

// Position returns the line in the file and the column of an offset, both from 1.
func (d *Document) Position(offset int) (line, column int) {
	before := d.Text[:min(offset, len(d.Text))]
	start := bytes.LastIndexByte(before, '\n') + 1
	return d.Line + bytes.Count(before, []byte("\n")), len([]rune(string(before[start:]))) + 1
}

// Position returns the line and column of the start of the node.
func (n *Node) Position() (line, column int) { return n.doc.Position(n.Start) }

// Raw returns the text of the node as written.
func (n *Node) Raw() string {
	if n == nil {
		return ""
	}
	return string(n.doc.Text[n.Start:n.End])
}

// Text returns the value of a scalar, and "" for other nodes.
func (n *Node) Text() string {
	if n == nil || n.Kind != Scalar {
		return ""
	}
	raw := n.doc.Text[n.Start:n.End]
	switch raw[0] {
	case '"', '\'':
		if inner := raw[1 : len(raw)-1]; verbatim(inner, raw[0]) {
			return string(inner)
		}
	case '|':
		if text, ok := literalText(raw); ok && n.End < len(n.doc.Text) {
			return text
		}
	case '>':
	default:
		if !folded(raw) {
			return string(raw)
		}
	}
	// A library handles folding and escapes.
	var text string
	var err error
	if raw[0] != '|' && raw[0] != '>' {
		err = yaml.Unmarshal(append([]byte("!!str "), raw...), &text)
	} else {
		// The indentation of a block scalar is relative to its parent. Parse it after a key with
		// the same indentation, and with the line break that may belong to it.
		if br := bytes.IndexByte(n.doc.Text[n.End:], '\n'); br >= 0 {
			raw = n.doc.Text[n.Start : n.End+br+1]
		}
		var group struct{ V *string }
		group.V = &text
		err = yaml.Unmarshal(fmt.Appendf(nil, "%sv: !!str %s", strings.Repeat(" ", n.in), raw), &group)
	}
	if err != nil && (raw[0] != '"' || json.Unmarshal(raw, &text) != nil) { // only JSON has pairs of \u
		return string(n.doc.Text[n.Start:n.End])
	}
	return text
}

// verbatim reports whether the text in quotes contains no escapes and no line breaks.
func verbatim(inner []byte, quote byte) bool {
	return bytes.IndexByte(inner, quote) < 0 && bytes.IndexByte(inner, '\\') < 0 && !folded(inner)
}

// folded reports whether a scalar spans several lines.
func folded(raw []byte) bool { return bytes.IndexByte(raw, '\n') >= 0 }

// literalText returns the value of a block with the plain indicator |, the most common form.
func literalText(raw []byte) (string, bool) {
	body, ok := bytes.CutPrefix(raw, []byte("|\n"))
	if !ok || bytes.IndexByte(raw, '\r') >= 0 {
		return "", false
	}
	margin := len(body) - len(bytes.TrimLeft(body, " "))
	if margin == 0 || margin == len(body) || body[margin] == '\n' {
		return "", false
	}
	text := make([]byte, 0, len(body)+1)
	for line := range bytes.SplitSeq(body, []byte("\n")) {
		text = append(append(text, line[min(margin, len(line)):]...), '\n')
	}
	return string(text), true
}

// IsNull reports whether the node is empty or an explicit null.
func (n *Node) IsNull() bool {
	if n == nil || n.Kind == Null {
		return true
	}
	if n.Kind != Scalar {
		return false
	}
	switch n.Raw() {
	case "null", "Null", "NULL", "~":
		return true
	}
	return false
}

// Empty reports whether the node is null, or a mapping or sequence without children.
func (n *Node) Empty() bool {
	return n.IsNull() || (n.Kind == Mapping || n.Kind == Sequence) && len(n.Pairs)+len(n.Items) == 0
}

// Get returns the value at a path of keys, or nil. It returns the first of duplicate keys.
func (n *Node) Get(keys ...string) *Node {
	for _, key := range keys {
		p := n.Pair(key)
		if p == nil {
			return nil
		}
		n = p.Value
	}
	return n
}

// Pair returns the pair of a key, or nil.
func (n *Node) Pair(key string) *Pair {
	if n == nil {
		return nil
	}
	for i := range n.Pairs {
		if n.Pairs[i].Key.Is(key) {
			return &n.Pairs[i]
		}
	}
	return nil
}

// Is reports whether the node is a scalar with this text.
func (n *Node) Is(text string) bool {
	if n == nil || n.Kind != Scalar {
		return false
	}
	switch raw := n.raw(); raw[0] {
	case '"', '\'':
		if letter(raw[1]) && (text == "" || text[0] != raw[1]) {
			return false
		}
		if inner := raw[1 : len(raw)-1]; verbatim(inner, raw[0]) {
			return string(inner) == text
		}
		return n.Text() == text
	case '|', '>':
		return n.Text() == text
	default:
		if len(raw) == len(text) || text == "" || text[0] != raw[0] {
			return string(raw) == text
		}
		return len(raw) > len(text) && folded(raw) && n.Text() == text
	}
}

// Same reports whether two scalars have the same text.
func (n *Node) Same(other *Node) bool {
	if n.plain() && other.plain() {
		return bytes.Equal(n.raw(), other.raw())
	}
	return n.Text() == other.Text()
}

// plain reports whether the node is a scalar whose text is written as it is.
func (n *Node) plain() bool {
	return n.Kind == Scalar && strings.IndexByte("\"'|>", n.raw()[0]) < 0 && !folded(n.raw())
}

func (n *Node) raw() []byte { return n.doc.Text[n.Start:n.End] }

// Contains reports whether a part of the node's text is the given one.
func (n *Node) Contains(part string) bool {
	if n == nil || n.Kind != Scalar {
		return false
	}
	raw := n.raw()
	if c := raw[0]; (c == '"' || c == '\'') && verbatim(raw[1:len(raw)-1], c) {
		return bytes.Contains(raw[1:len(raw)-1], []byte(part))
	}
	return strings.Contains(n.Text(), part)
}

// All returns the items of a sequence, or nil for other nodes and nil.
func (n *Node) All() []*Node {
	if n == nil {
		return nil
	}
	return n.Items
}

// Item returns the first item of a sequence whose key has the given value, or nil.
func (n *Node) Item(key, value string) *Node {
	if n == nil {
		return nil
	}
	for _, item := range n.Items {
		if item.Get(key).Is(value) {
			return item
		}
	}
	return nil
}

// AtEnd reports whether the document's text ends with the node.
func (n *Node) AtEnd() bool { return n.End == len(n.doc.Text) }

// Tagged reports whether the node has an explicit tag.
func (n *Node) Tagged() bool { return n.tag != "" }

// Written returns the node's text with its tag, if it has one.
func (n *Node) Written() string { return n.tag + " " + n.Raw() }

// Shared reports whether an alias refers to this node. A change to the node would apply there too.
func (n *Node) Shared() bool { return n.Anchor != "" && n.Kind != Alias && n.doc.aliased[n.Anchor] }

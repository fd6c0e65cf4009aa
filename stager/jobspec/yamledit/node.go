package yamledit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Kind is what a node is.
type Kind uint8

// The kinds.
const (
	Null     Kind = iota // nothing stands there
	Scalar               // one value, which may say null, too
	Mapping              // keys and values
	Sequence             // a list
	Alias                // *name
)

// Node is a part of a document. Start and End are offsets in its text: the first
// byte, behind any anchor and tag, and the one behind the last. A Null has Start ==
// End, where its value would begin.
type Node struct {
	Kind       Kind
	Flow       bool   // written with brackets or braces
	tag        string // of its own, as it is written; or ""
	Start, End int
	Anchor     string // the name behind &, or of an Alias the one behind *
	Pairs      []Pair // of a Mapping
	Items      []*Node

	doc  *Document
	dash int // of an item of a list in block style: where its dash is
	in   int // of a block scalar: the indentation that its own is measured from
}

// Pair is a key with its value. Colon is the offset behind the colon; where there is
// none, it is the key's end.
type Pair struct {
	Key, Value *Node
	Colon      int
}

// Document is one document of a file. Text is all that belongs to it, with the --- in
// front; Line is that of the file in which Text begins, from 1.
type Document struct {
	Text []byte
	Line int
	Root *Node // nil before Parse, and for a document without content

	aliased map[string]bool // anchors that an alias names
}

// SyntaxError says what is not understood in a file and where, both from 1.
type SyntaxError struct {
	Line, Column int
	Text         string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Text)
}

// Position is the line of the file and the column, both from 1, of an offset.
func (d *Document) Position(offset int) (line, column int) {
	before := d.Text[:min(offset, len(d.Text))]
	start := bytes.LastIndexByte(before, '\n') + 1
	return d.Line + bytes.Count(before, []byte("\n")), len([]rune(string(before[start:]))) + 1
}

// Position is where the node begins.
func (n *Node) Position() (line, column int) { return n.doc.Position(n.Start) }

// Raw is the node's text as it is written.
func (n *Node) Raw() string {
	if n == nil {
		return ""
	}
	return string(n.doc.Text[n.Start:n.End])
}

// Text is the value of a scalar, and "" of anything else.
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
	// Folding and escapes are a library's.
	var text string
	var err error
	if raw[0] != '|' && raw[0] != '>' {
		err = yaml.Unmarshal(append([]byte("!!str "), raw...), &text)
	} else {
		// Its indentation is measured from what it stands in, so it is read behind a
		// key that is indented as much, with the line break that may belong to it.
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

// verbatim tells whether what stands between quotes means itself.
func verbatim(inner []byte, quote byte) bool {
	return bytes.IndexByte(inner, quote) < 0 && bytes.IndexByte(inner, '\\') < 0 && !folded(inner)
}

// folded tells whether a scalar goes over several lines.
func folded(raw []byte) bool { return bytes.IndexByte(raw, '\n') >= 0 }

// literalText is the value of a block behind a mere |, which most are.
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

// IsNull tells whether nothing stands there, or a word that means nothing.
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

// Empty tells whether the node is null, or a list or group without entries.
func (n *Node) Empty() bool {
	return n.IsNull() || (n.Kind == Mapping || n.Kind == Sequence) && len(n.Pairs)+len(n.Items) == 0
}

// Get is the value of a key, or nil: the first, should it stand there twice.
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

// Pair is the pair of a key, or nil.
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

// Is tells whether the node is a scalar of this text.
func (n *Node) Is(text string) bool {
	if n == nil || n.Kind != Scalar {
		return false
	}
	switch raw := n.doc.Text[n.Start:n.End]; raw[0] {
	case '"', '\'':
		if inner := raw[1 : len(raw)-1]; verbatim(inner, raw[0]) {
			return string(inner) == text
		}
		return n.Text() == text
	case '|', '>':
		return n.Text() == text
	default:
		return string(raw) == text || len(raw) > len(text) && folded(raw) && n.Text() == text
	}
}

// All are the items of a list; none of what is no list, or nil.
func (n *Node) All() []*Node {
	if n == nil {
		return nil
	}
	return n.Items
}

// Item is the first item of a list whose key has a value, or nil.
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

// Tagged reports whether the node has a tag of its own.
func (n *Node) Tagged() bool { return n.tag != "" }

// Written is the node's text with its tag, if it has one.
func (n *Node) Written() string { return n.tag + " " + n.Raw() }

// Shared tells whether an alias elsewhere means this node, so that a change within it
// would be one there, too.
func (n *Node) Shared() bool { return n.Anchor != "" && n.Kind != Alias && n.doc.aliased[n.Anchor] }

package jobspec

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// A place is the path of keys from a pod template to a node. An item of a list is identified by one
// of its fields, such as name=main; if another field is needed to distinguish items, it follows the
// last comma. "^" leads from the template to its parent. The record joins the parts with / and
// escapes them as in a JSON pointer (RFC 6901).
type place []string

func at(parts ...string) place { return parts }

func (p place) in(parts ...string) place { return append(slices.Clip(p), parts...) }

func (p place) String() string {
	text := make([]byte, 0, 128)
	for i, part := range p {
		if i > 0 {
			text = append(text, '/')
		}
		for j := range len(part) {
			switch c := part[j]; c {
			case '~':
				text = append(text, "~0"...)
			case '/':
				text = append(text, "~1"...)
			default:
				text = append(text, c)
			}
		}
	}
	return string(text)
}

func parsePlace(text string) place { return appendPlace(nil, text) }

// appendPlace appends the parts of a place in a record to p.
func appendPlace(p place, text string) place {
	for part := range strings.SplitSeq(text, "/") {
		if strings.IndexByte(part, '~') >= 0 {
			part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		}
		p = append(p, part)
	}
	return p
}

// itemKey splits a part that identifies a list item into field and value.
func itemKey(part string) (field, value string, item bool) {
	field, value, item = strings.Cut(part, "=")
	if !item || field != "name" && field != "mountPath" {
		return "", "", false
	}
	return field, value, true
}

// index returns the index of the child of n that a part identifies, or -1. [2] is the third item.
func index(n *yamledit.Node, part string) int {
	if n.Kind == yamledit.Sequence && strings.HasPrefix(part, "[") {
		if i, err := strconv.Atoi(strings.Trim(part, "[]")); err == nil && 0 <= i && i < len(n.Items) {
			return i
		}
		return -1
	}
	if field, value, item := itemKey(part); item && n.Kind == yamledit.Sequence {
		return slices.IndexFunc(n.Items, func(i *yamledit.Node) bool { return i.Get(field).Is(value) })
	}
	return slices.IndexFunc(n.Pairs, func(p yamledit.Pair) bool { return p.Key.Is(part) })
}

// nth returns the i-th child of n.
func nth(n *yamledit.Node, i int) *yamledit.Node {
	if n.Kind == yamledit.Sequence {
		return n.Items[i]
	}
	return n.Pairs[i].Value
}

// branch is a tree of changes. Each leaf is a value to insert or to replace another.
type branch struct {
	part     string
	leaf     bool
	value    any
	children []*branch
	behind   *int // list item after which new items are inserted; nil: the last
}

// child returns the branch of a part and creates it if necessary.
func (b *branch) child(part string) *branch {
	for _, c := range b.children {
		if c.part == part {
			return c
		}
	}
	c := &branch{part: part}
	if b.children == nil {
		b.children = make([]*branch, 0, 4)
	}
	b.children = append(b.children, c)
	return c
}

// put adds a change.
func (b *branch) put(p place, value any) {
	for _, part := range p {
		b = b.child(part)
	}
	b.leaf, b.value = true, value
}

// list reports whether the branch's children are list items.
func (b *branch) list() bool {
	if len(b.children) == 0 {
		return false
	}
	_, _, item := itemKey(b.children[0].part)
	return item
}

// build returns the value of a branch that does not exist in the document.
func (b *branch) build() any {
	if b.leaf {
		return b.value
	}
	if b.list() {
		var items []any
		for _, c := range b.children {
			items = append(items, c.build())
		}
		return items
	}
	var m yamledit.Map
	for _, c := range b.children {
		m = append(m, yamledit.Entry{Key: c.part, Value: c.build()})
	}
	return m
}

// sum returns a digest of all changes. It uses and keeps a buffer.
func (b *branch) sum(buffer *[]byte) string {
	*buffer = b.spell((*buffer)[:0])
	sum := sha256.Sum256(*buffer)
	return hex.EncodeToString(sum[:])
}

// spell appends an unambiguous serialization of a branch: different branches never serialize to the
// same bytes.
func (b *branch) spell(to []byte) []byte {
	to = spellText(to, b.part)
	if b.leaf {
		return spell(append(to, '='), b.value)
	}
	to = append(to, '(')
	for _, c := range b.children {
		to = c.spell(to)
	}
	return append(to, ')')
}

func spellText(to []byte, text string) []byte {
	return append(append(strconv.AppendInt(to, int64(len(text)), 10), ':'), text...)
}

func spell(to []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		return spellText(to, v)
	case yamledit.Map:
		to = append(to, '{')
		for _, e := range v {
			to = spell(spellText(to, e.Key), e.Value)
		}
		return append(to, '}')
	case []any:
		to = append(to, '[')
		for _, item := range v {
			to = spell(to, item)
		}
		return append(to, ']')
	}
	return fmt.Appendf(to, "%v;", v) // a number or bool
}

// record is the data with which Uninject reverses the changes.
type record struct {
	At    string               `json:"at,omitempty"`    // place of the pod's spec, if not "spec"
	Put   []string             `json:"put,omitempty"`   // inserted values
	Made  []string             `json:"made,omitempty"`  // created lists and mappings
	Empty map[string]string    `json:"empty,omitempty"` // lists and mappings that were empty, with their text
	Was   map[string][2]string `json:"was,omitempty"`   // values before and after
	Open  []string             `json:"open,omitempty"`  // places in Was whose text ended with the file, without a line break
}

// applier writes a branch into a document, or only fills in the record.
type applier struct {
	edit    *yamledit.Editor
	rec     *record // nil: write
	checked bool    // all nodes are editable
}

// apply writes the changes of b into n, the node at p.
func (a *applier) apply(n *yamledit.Node, b *branch, p place) {
	if !a.checked {
		editable(n, p)
	}
	var fresh yamledit.Map
	added := 0
	for _, c := range b.children {
		here := append(p, c.part) // nothing keeps a place, so that its siblings reuse its memory
		i := index(n, c.part)
		switch {
		case i < 0:
			if mergedIn(n) {
				refuse(n, "%s inherits fields from an anchor by <<, and %s may be one of them; write these fields out instead of using <<", p.called(), c.part)
			}
			added++
			if a.rec != nil {
				a.made(c, here)
				continue
			}
			if fresh == nil {
				fresh = make(yamledit.Map, 0, len(b.children))
			}
			fresh = append(fresh, yamledit.Entry{Key: c.part, Value: c.build()})
		case c.leaf && n.Kind == yamledit.Sequence:
			refuse(nth(n, i), "%s already exists and was not injected; remove it or give it another name", here.called())
		case c.leaf:
			pair := &n.Pairs[i]
			unshared(pair.Value, here)
			is := a.edit.Replace(n, pair, c.value)
			if a.rec == nil {
				continue
			}
			if yamledit.EndsOpen(pair.Value) {
				a.rec.Open = append(a.rec.Open, here.String())
			}
			a.rec.Was = set(a.rec.Was, here.String(), [2]string{n.Region(pair), is})
		case nth(n, i).Empty() && n.Kind == yamledit.Mapping:
			pair := &n.Pairs[i]
			unshared(pair.Value, here)
			if a.rec == nil {
				a.edit.Replace(n, pair, c.build())
				continue
			}
			a.rec.Empty = set(a.rec.Empty, here.String(), n.Region(pair))
			a.puts(c, here)
		default:
			a.apply(nth(n, i), c, here)
		}
	}
	last := n.Len() - 1
	if yamledit.EndsOpen(n) {
		last-- // inserting after a text at the end of the file would add a line break to it
	}
	behind := last
	if b.behind != nil {
		behind = *b.behind
	}
	switch {
	case added == 0:
	case behind > last:
		refuse(n, "the text at the end of the file has no line break after it; add one")
	case behind < 0 && !yamledit.CanLead(n):
		refuse(n, "%s is written so that nothing can be inserted before it; start it on a line of its own", p.called())
	}
	if a.rec == nil {
		a.edit.Insert(n, behind, fresh)
	}
}

func (a *applier) made(b *branch, p place) {
	if b.leaf {
		a.rec.Put = append(a.rec.Put, p.String())
		return
	}
	a.rec.Made = append(a.rec.Made, p.String())
	a.puts(b, p)
}

func (a *applier) puts(b *branch, p place) {
	for _, c := range b.children {
		a.made(c, append(p, c.part))
	}
}

func set[V any](m map[string]V, key string, value V) map[string]V {
	if m == nil {
		m = make(map[string]V)
	}
	m[key] = value
	return m
}

// called formats a place for messages.
func (p place) called() string {
	if len(p) == 0 {
		return "the pod template"
	}
	return strings.ReplaceAll(strings.Join(p, "."), ".name=", ".")
}

// editable refuses nodes that cannot be edited.
func editable(n *yamledit.Node, p place) {
	unshared(n, p)
	if n.Kind != yamledit.Mapping && n.Kind != yamledit.Sequence {
		refuse(n, "%s is a single value; a mapping or a list is expected", p.called())
	}
	for i, pair := range n.Pairs {
		if slices.ContainsFunc(n.Pairs[:i], func(before yamledit.Pair) bool { return before.Key.Same(pair.Key) }) {
			refuse(pair.Key, "duplicate %s in %s; write it once", pair.Key.Text(), p.called())
		}
	}
}

// unshared refuses a change that an alias would apply in two places.
func unshared(n *yamledit.Node, p place) {
	if n.Kind == yamledit.Alias {
		refuse(n, "%s is the alias *%s, and a change to it would also change its anchor; write its value out", p.called(), n.Anchor)
	}
	if n.Shared() {
		refuse(n, "%s has the anchor &%s, to which an alias elsewhere refers; write the value out there", p.called(), n.Anchor)
	}
}

func mergedIn(n *yamledit.Node) bool { return n.Pair("<<") != nil }

package yamledit

import (
	"bytes"
	"cmp"
	"iter"
	"slices"
)

// Editor collects changes to a parsed document. All changes refer to the tree as it was parsed. The
// inside of a replaced or removed part must not be changed.
type Editor struct {
	doc     *Document
	splices []splice
	added   []byte // the texts of all splices
	dashIn  int    // indentation of a list below its key
	br      string // line break
}

// splice replaces [start, end) of the document with added[from:to].
type splice struct{ start, end, from, to int }

// NewEditor returns an editor for a parsed document, which must have content.
func NewEditor(d *Document) *Editor {
	e := new(Editor)
	e.Reset(d)
	return e
}

// Reset discards all changes. The editor then collects those to a parsed document, which must have
// content, in the memory that it has already.
func (e *Editor) Reset(d *Document) {
	*e = Editor{doc: d, splices: e.splices[:0], added: e.added[:0], dashIn: max(0, dashIndent(d.Root, 0)), br: d.lineBreak()}
}

// replace adds a splice with a text.
func (e *Editor) replace(start, end int, text string) {
	from := len(e.added)
	e.added = append(e.added, text...)
	e.splices = append(e.splices, splice{start, end, from, len(e.added)})
}

// writer returns a writer whose text follows what the editor has. The splice is added by written.
func (e *Editor) writer() writer {
	return writer{buffer: e.added, dashIn: e.dashIn, br: e.br}
}

// written adds a splice with the text of a writer.
func (e *Editor) written(start, end int, w *writer) {
	from := len(e.added)
	e.added = w.buffer
	e.splices = append(e.splices, splice{start, end, from, len(e.added)})
}

// dashIndent returns the indentation of the first list below a key, or -1 if there is none.
func dashIndent(n *Node, col int) int {
	for _, p := range n.Pairs {
		if n.Flow {
			return -1
		}
		keyCol := n.doc.col(p.Key.Start)
		if v := p.Value; v.Kind == Sequence && !v.Flow {
			return n.doc.col(v.Items[0].dash) - keyCol
		}
		if in := dashIndent(p.Value, keyCol); in >= 0 {
			return in
		}
	}
	return -1
}

// bol returns the offset of the start of a line.
func (d *Document) bol(at int) int { return bytes.LastIndexByte(d.Text[:at], '\n') + 1 }

// col returns the column of an offset, from 0, in bytes.
func (d *Document) col(at int) int { return at - d.bol(at) }

// eol returns the offset of the end of a line, before its line break.
func (d *Document) eol(at int) int {
	end := bytes.IndexByte(d.Text[at:], '\n')
	if end < 0 {
		return len(d.Text)
	}
	return d.beforeBreak(at + end)
}

// beforeBreak returns the start of the line break whose \n is at an offset.
func (d *Document) beforeBreak(at int) int {
	if at > 0 && d.Text[at-1] == '\r' {
		return at - 1
	}
	return at
}

// lineBreak returns the line break of the document.
func (d *Document) lineBreak() string {
	if i := bytes.IndexByte(d.Text, '\n'); i > 0 && d.Text[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// Insert inserts entries into a mapping or sequence that is not empty. They follow the child with
// index behind. If behind is -1, they precede all children, which requires [CanLead]. The keys of
// entries are ignored in a sequence. Make changes inside of that child first: at the same offset,
// changes are applied in the order of the calls.
func (e *Editor) Insert(parent *Node, behind int, entries Map) {
	if len(entries) == 0 {
		return
	}
	if parent.Flow {
		e.insertFlow(parent, behind, entries)
		return
	}
	d := e.doc
	first := parent.child(0)
	w := e.writer()
	indent := d.col(first)
	for _, entry := range entries {
		w.line(indent)
		w.entry(entry, indent, parent.Kind == Sequence)
	}
	at := 0
	if behind >= 0 {
		at = d.eol(parent.childEnd(behind))
	} else {
		at = d.beforeBreak(d.bol(first) - 1)
	}
	e.written(at, at, &w)
}

// CanLead reports whether Insert can insert before all children.
func CanLead(parent *Node) bool {
	if parent.Flow {
		return true
	}
	first := parent.child(0)
	return parent.doc.bol(first) > 0 && parent.doc.leadsLine(first)
}

// EndsOpen reports whether a node ends with a block scalar that ends at the end of the file,
// without a line break. A line break after it would become a part of the text.
func EndsOpen(n *Node) bool {
	for n.Kind == Mapping && !n.Flow && len(n.Pairs) > 0 {
		n = n.Pairs[len(n.Pairs)-1].Value
	}
	if n.Kind == Sequence && !n.Flow && len(n.Items) > 0 {
		return EndsOpen(n.Items[len(n.Items)-1])
	}
	return n.Kind == Scalar && n.End == len(n.doc.Text) && (n.doc.Text[n.Start] == '|' || n.doc.Text[n.Start] == '>')
}

func (e *Editor) insertFlow(parent *Node, behind int, entries Map) {
	d := e.doc
	w := e.writer()
	w.json, w.dashIn = d.Root.Flow, 0
	separator := " "
	if first := parent.child(0); bytes.IndexByte(d.Text[parent.Start:first], '\n') >= 0 {
		prefix := d.Text[d.bol(first):first]
		if len(trimBlanks(prefix)) == 0 {
			w.prefix, w.step = string(prefix), "  "
			opening := d.Text[d.bol(parent.Start):]
			outer := opening[:len(opening)-len(bytes.TrimLeft(opening, " \t"))]
			if step, ok := bytes.CutPrefix(prefix, outer); ok && len(step) > 0 {
				w.step = string(step)
			}
			separator = w.br + w.prefix
		}
	}
	for i, entry := range entries {
		if i > 0 || behind >= 0 {
			w.writeByte(',')
			w.writeString(separator)
		}
		w.flowEntry(entry, parent.Kind == Sequence, w.prefix)
	}
	at := parent.child(0)
	if behind >= 0 {
		at = parent.childEnd(behind)
	} else {
		w.writeByte(',')
		w.writeString(separator)
	}
	e.written(at, at, &w)
}

// child returns the offset of the i-th child, including its key or dash.
func (n *Node) child(i int) int {
	switch {
	case n.Kind == Mapping:
		return n.Pairs[i].Key.Start
	case n.Flow:
		return n.Items[i].Start
	}
	return n.Items[i].dash
}

// childEnd returns the end offset of the i-th child.
func (n *Node) childEnd(i int) int {
	if n.Kind == Mapping {
		return max(n.Pairs[i].Colon, n.Pairs[i].Value.End)
	}
	if n.Flow {
		return n.Items[i].End
	}
	return max(n.Items[i].dash+1, n.Items[i].End)
}

// Len returns the number of children.
func (n *Node) Len() int { return len(n.Pairs) + len(n.Items) }

// Region returns the text between a pair's colon and the end of its value. Replace replaces it, and
// Restore restores it.
func (n *Node) Region(p *Pair) string { return string(n.doc.Text[p.Colon:max(p.Colon, p.Value.End)]) }

// Replace replaces the value of a pair of parent. It returns the new region.
func (e *Editor) Replace(parent *Node, p *Pair, value any) string {
	w := e.writer()
	if parent.Flow {
		w.json = e.doc.Root.Flow
		w.writeString(" ")
		w.flow(value, "")
	} else {
		w.value(value, e.doc.col(p.Key.Start))
	}
	text := string(w.buffer[len(e.added):])
	e.written(p.Colon, max(p.Colon, p.Value.End), &w)
	return text
}

// Restore restores a region that Replace has replaced.
func (e *Editor) Restore(p *Pair, region string) {
	e.replace(p.Colon, max(p.Colon, p.Value.End), region)
}

// Remove removes the children of a mapping or sequence for which gone returns true. It reverses
// Insert. The result is valid for every style of parent.
func (e *Editor) Remove(parent *Node, gone func(i int) bool) {
	d, n := e.doc, parent.Len()
	for i := 0; i < n; i++ {
		if !gone(i) {
			continue
		}
		last := i
		for last+1 < n && gone(last+1) {
			last++
		}
		cut := splice{start: parent.child(i), end: parent.childEnd(last)}
		switch {
		case i == 0 && last+1 == n:
			e.clear(parent)
			return
		case parent.Flow && i > 0:
			cut.start = parent.childEnd(i - 1)
		case parent.Flow || !d.leadsLine(cut.start): // the next child moves to this dash
			cut.end = parent.child(last + 1)
		default:
			cut.start = d.beforeBreak(max(d.bol(cut.start)-1, 0))
			cut.end = d.eol(cut.end)
		}
		e.splices = append(e.splices, cut)
		i = last
	}
}

// clear makes parent an empty mapping or sequence.
func (e *Editor) clear(parent *Node) {
	d := e.doc
	start, end := parent.child(0), parent.childEnd(parent.Len()-1)
	empty := "{}"
	if parent.Kind == Sequence {
		empty = "[]"
	}
	switch above := d.beforeBreak(max(d.bol(start)-1, 0)); {
	case parent.Flow:
		e.replace(parent.Start+1, parent.End-1, "")
	case !d.leadsLine(start):
		e.replace(start, end, empty)
	case bytes.IndexByte(d.Text[d.bol(above):above], '#') >= 0: // may be a comment
		e.replace(start, end, "  "+empty)
	default:
		e.replace(above, d.eol(end), " "+empty)
	}
}

// leadsLine reports whether only blanks precede an offset on its line.
func (d *Document) leadsLine(at int) bool { return len(trimBlanks(d.Text[d.bol(at):at])) == 0 }

// Changed reports whether there are changes.
func (e *Editor) Changed() bool { return len(e.splices) > 0 }

// Text returns the document's text with all changes.
func (e *Editor) Text() []byte {
	out := make([]byte, 0, len(e.doc.Text)+len(e.added))
	for piece := range e.pieces() {
		out = append(out, piece...)
	}
	return out
}

// Yields reports whether Text would return the given text.
func (e *Editor) Yields(text []byte) bool {
	for piece := range e.pieces() {
		rest, ok := bytes.CutPrefix(text, piece)
		if !ok {
			return false
		}
		text = rest
	}
	return len(text) == 0
}

// pieces returns the parts of which Text consists.
func (e *Editor) pieces() iter.Seq[[]byte] {
	slices.SortStableFunc(e.splices, func(a, b splice) int { return cmp.Compare(a.start, b.start) })
	return func(yield func([]byte) bool) {
		at := 0
		for _, s := range e.splices {
			if !yield(e.doc.Text[at:max(at, s.start)]) || !yield(e.added[s.from:s.to]) {
				return
			}
			at = max(at, s.end)
		}
		yield(e.doc.Text[at:])
	}
}

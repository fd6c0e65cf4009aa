package jobspec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// undoer removes the injected parts of a document according to its records.
type undoer struct {
	edit    *yamledit.Editor
	byValue bool                        // restore values, not text, because another program has rewritten the document
	gone    map[*yamledit.Node]*removed // children to remove, by parent
	fresh   map[*yamledit.Node]restored // replacements of nodes
}

// removed is the set of children of a node that are removed.
type removed struct {
	at    []bool // by index
	count int
}

// has reports whether a child is in the set, which may be nil.
func (r *removed) has(i int) bool { return r != nil && r.at[i] }

// restored is a value that replaces another.
type restored struct {
	byText bool
	region string // the original text
	value  any    // if there is no region
}

// newUndoer returns an undoer that uses the memory of an editor.
func newUndoer(edit *yamledit.Editor, d *yamledit.Document, byValue bool) *undoer {
	edit.Reset(d)
	return &undoer{edit, byValue, make(map[*yamledit.Node]*removed), make(map[*yamledit.Node]restored)}
}

// undo removes what was injected into a pod template, if anything was. The caller must then call
// flush. undo returns the places of values that inject changed and another program changed again;
// they stay as they are.
func (u *undoer) undo(t *template) (changed bool, kept []string) {
	note := t.own(AnnotationUndo)
	if note == nil {
		return false, nil
	}
	rec := t.record(note)
	for _, put := range rec.Put {
		if parent, i := t.reach(put); i >= 0 {
			u.remove(parent, i)
		}
	}
	// Remove created lists and mappings that have no other content, innermost first.
	slices.SortStableFunc(rec.Made, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	for _, made := range rec.Made {
		if parent, i := t.reach(made); i >= 0 && u.emptied(nth(parent, i)) {
			u.remove(parent, i)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(rec.Empty)) {
		if parent, i := t.reach(path); i >= 0 && parent.Kind == yamledit.Mapping && u.emptied(nth(parent, i)) {
			delete(u.gone, nth(parent, i))
			u.restore(note, parent, i, written{text: rec.Empty[path]})
		}
	}
	for _, path := range slices.Sorted(maps.Keys(rec.Was)) {
		if parent, i := t.reach(path); i >= 0 && parent.Kind == yamledit.Mapping && !u.revert(note, parent, i, path, written{rec.Was[path][0], slices.Contains(rec.Open, path)}, rec.Was[path][1]) {
			kept = append(kept, path)
		}
	}
	return true, kept
}

// record returns the record in an annotation.
func (t *template) record(note *yamledit.Node) *record {
	text := note.Text()
	if t.wrote != nil && text == t.wrote.text {
		return &t.wrote.record
	}
	rec := new(record)
	if err := json.Unmarshal([]byte(text), rec); err != nil {
		refuse(note, "%s is not what inject wrote (%v); remove stager's parts by hand, or use the file as it was before inject", AnnotationUndo, err)
	}
	return rec
}

// reach is find for a place in a record. It refuses places behind an alias.
func (t *template) reach(path string) (parent *yamledit.Node, child int) {
	p := appendPlace(make(place, 0, depthOfChange), path)
	parent, child = t.find(p)
	if parent != nil && parent.Kind == yamledit.Alias {
		refuse(parent, "the alias *%s hides the injected part at %s; write its value out", parent.Anchor, p.called())
	}
	return parent, child
}

// written is the text of a region before inject.
type written struct {
	text string
	open bool // the region ended at the end of the file
}

func (w written) value() (v any, known bool) { return value(w.text, w.open) }

// revert restores a value that inject changed. It returns false if the value was changed again
// since and cannot be restored; the value then stays.
func (u *undoer) revert(note, parent *yamledit.Node, i int, path string, was written, is string) bool {
	pair := &parent.Pairs[i]
	if parent.Region(pair) == is {
		u.restore(note, parent, i, was)
		return true
	}
	after, known := value(is, false)
	if !known {
		return false
	}
	if equal(after, pair.Value) || strings.Contains(path, "/resources/") && sameQuantity(after, pair.Value) {
		u.replace(parent, i, meaning(note, was))
		return true
	}
	if rest, ok := behind(after, was, pair.Value); ok {
		u.replace(parent, i, rest)
		return true
	}
	return false
}

// behind returns the list items after those that inject inserted at the front. It reports false if
// the inserted items were changed.
func behind(after any, before written, n *yamledit.Node) (rest []any, ok bool) {
	is, _ := after.([]any)
	was, known := before.value()
	list, isList := was.([]any)
	front := len(is) - len(list)
	if !known || !isList || front <= 0 || n.Kind != yamledit.Sequence || len(n.Items) < front || hasAlias(n) {
		return nil, false
	}
	rest = []any{}
	for i, item := range n.Items {
		if i >= front {
			rest = append(rest, decode(item))
		} else if !equal(is[i], item) {
			return nil, false
		}
	}
	return rest, true
}

func (u *undoer) remove(parent *yamledit.Node, i int) {
	gone := u.gone[parent]
	if gone == nil {
		gone = &removed{at: make([]bool, parent.Len())}
		u.gone[parent] = gone
	}
	if !gone.at[i] {
		gone.at[i] = true
		gone.count++
	}
}

// restore restores a region, by its text or by its value.
func (u *undoer) restore(note, parent *yamledit.Node, i int, was written) {
	if u.byValue || was.open && !nth(parent, i).AtEnd() {
		u.replace(parent, i, meaning(note, was))
		return
	}
	u.fresh[nth(parent, i)] = restored{byText: true, region: was.text}
	u.edit.Restore(&parent.Pairs[i], was.text)
}

func (u *undoer) replace(parent *yamledit.Node, i int, v any) {
	u.fresh[nth(parent, i)] = restored{value: v}
	u.edit.Replace(parent, &parent.Pairs[i], v)
}

// meaning returns the value of a region and refuses one whose value is unknown.
func meaning(note *yamledit.Node, was written) any {
	v, known := was.value()
	if !known {
		refuse(note, "another program has rewritten this document since inject, and %s no longer defines what%s means; use the document as it was before inject", AnnotationUndo, was.text)
	}
	return v
}

// emptied reports whether all children of n are removed.
func (u *undoer) emptied(n *yamledit.Node) bool {
	gone := u.gone[n]
	return gone != nil && gone.count == n.Len()
}

// flush applies the removals, one edit per parent, from the start of the document to its end.
func (u *undoer) flush() {
	parents := slices.SortedFunc(maps.Keys(u.gone), func(a, b *yamledit.Node) int { return cmp.Compare(a.Start, b.Start) })
	for _, parent := range parents {
		if !u.within(parent) {
			u.edit.Remove(parent, u.gone[parent].has)
		}
	}
}

// within reports whether a removed node contains n.
func (u *undoer) within(n *yamledit.Node) bool {
	for parent, gone := range u.gone {
		if n == parent || n.Start < parent.Start || n.End > parent.End {
			continue
		}
		for i, here := range gone.at {
			if child := nth(parent, i); here && child.Start <= n.Start && n.End <= child.End {
				return true
			}
		}
	}
	return false
}

// leaves reports whether the tree is equals the tree was, apart from removed and restored nodes.
// anchors are the anchors that an alias may refer to.
func (u *undoer) leaves(was, is *yamledit.Node, anchors map[string]bool) bool {
	if is == nil || was.Kind != is.Kind || was.Anchor != is.Anchor || was.Tagged() != is.Tagged() {
		return false
	}
	if is.Kind == yamledit.Alias {
		return anchors[is.Anchor]
	}
	if is.Anchor != "" {
		anchors[is.Anchor] = true
	}
	if was.Kind != yamledit.Mapping && was.Kind != yamledit.Sequence {
		raw := was.Raw()
		block := raw != "" && (raw[0] == '|' || raw[0] == '>')
		return raw == is.Raw() && (!block || was.Text() == is.Text())
	}
	next, gone := 0, u.gone[was]
	for i := range was.Len() {
		if gone.has(i) {
			continue
		}
		if next >= is.Len() || !u.childLeaves(was, is, i, next, anchors) {
			return false
		}
		next++
	}
	return next == is.Len()
}

// childLeaves is leaves for the i-th child of was and the j-th of is.
func (u *undoer) childLeaves(was, is *yamledit.Node, i, j int, anchors map[string]bool) bool {
	if was.Kind == yamledit.Mapping && was.Pairs[i].Key.Raw() != is.Pairs[j].Key.Raw() {
		return false
	}
	switch back, ok := u.fresh[nth(was, i)]; {
	case !ok:
		return u.leaves(nth(was, i), nth(is, j), anchors)
	case back.byText:
		return is.Region(&is.Pairs[j]) == back.region
	default:
		return equal(back.value, nth(is, j))
	}
}

// undo returns a document without its injected parts, and calls show for its objects, with their
// templates, as they are in the file. It removes the parts by text if they are as inject wrote
// them, and otherwise by structure and value. It adds a fault and returns nil if neither way
// removes exactly what the records list.
func (in *injector) undo(d *yamledit.Document, show func(*object)) *yamledit.Document {
	objects := in.objects(d, show)
	for _, byValue := range []bool{false, true} {
		u, changed := in.without(d, objects, byValue)
		switch {
		case u == nil:
			return nil
		case !changed:
			return d
		}
		clean := &yamledit.Document{Text: u.edit.Text(), Line: d.Line}
		if err := in.memory.clean.Parse(clean); err == nil && clean.Root != nil && u.leaves(d.Root, clean.Root, make(map[string]bool)) {
			return clean
		}
	}
	in.faults = append(in.faults, Fault{Line: d.Line, Column: 1, Text: fmt.Sprintf(
		"the injected parts cannot be removed according to %s: the document was changed so that the result would be invalid; remove stager's parts by hand, or use the document as it was before inject", AnnotationUndo)})
	return nil
}

// objects calls show for each object of a document, with its templates, and returns the objects.
func (in *injector) objects(d *yamledit.Document, show func(*object)) []*object {
	objects := objectsIn(d)
	for _, o := range objects {
		o.findTemplates(in.opts.Path)
		show(o)
	}
	return objects
}

// without removes the injected parts of a document in the editor of the undoer. It reports whether
// there are any. The undoer is nil if there were faults.
func (in *injector) without(d *yamledit.Document, objects []*object, byValue bool) (u *undoer, changed bool) {
	injected := func(o *object) bool {
		return slices.ContainsFunc(o.templates, func(t *template) bool { return t.own(AnnotationUndo) != nil })
	}
	if d.Root == nil || !slices.ContainsFunc(objects, injected) {
		return new(undoer), false
	}
	u = newUndoer(&in.memory.undo, d, byValue)
	faults := len(in.faults)
	for _, o := range objects {
		for _, t := range o.templates {
			if in.opts.Admission && t.own(AnnotationStatus) != nil {
				continue
			}
			if fault := catch(func() {
				did, kept := u.undo(t)
				changed, t.kept = changed || did, kept
			}); fault != nil {
				in.fault(o, fault)
			}
		}
	}
	if len(in.faults) > faults {
		return nil, false
	}
	if changed {
		u.flush()
	}
	return u, changed
}

package jobspec

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// undoer takes out of a document what records say was put in.
type undoer struct {
	edit *yamledit.Editor
	gone map[*yamledit.Node]map[int]bool // children to be taken out, by parent
}

// undo takes out what was put into a pod template, if anything was. Behind it
// removals have to be flushed.
func (u *undoer) undo(t *template) (changed bool) {
	note := t.own(AnnotationUndo)
	if note == nil {
		return false
	}
	var rec record
	if err := json.Unmarshal([]byte(note.Text()), &rec); err != nil {
		refuse(note, "%s is not what inject wrote (%v); take stager out by hand, or from the file that was injected", AnnotationUndo, err)
	}
	for _, put := range rec.Put {
		if parent, i := t.find(parsePlace(put)); i >= 0 {
			u.remove(parent, i)
		}
	}
	// What was made goes when nothing else has come in; the inner ones first.
	slices.SortStableFunc(rec.Made, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	for _, made := range rec.Made {
		if parent, i := t.find(parsePlace(made)); i >= 0 && u.emptied(nth(parent, i)) {
			u.remove(parent, i)
		}
	}
	for path, text := range rec.Empty {
		if parent, i := t.find(parsePlace(path)); i >= 0 && parent.Kind == yamledit.Mapping && u.emptied(nth(parent, i)) {
			delete(u.gone, nth(parent, i))
			u.restore(parent, i, text)
		}
	}
	for path, was := range rec.Was {
		parent, i := t.find(parsePlace(path))
		if i < 0 || parent.Kind != yamledit.Mapping {
			continue
		}
		switch region := parent.Region(&parent.Pairs[i]); {
		case region == was[1]:
			u.restore(parent, i, was[0])
		case sameValue(region, was[1]): // written anew by some program
			u.edit.Replace(parent, &parent.Pairs[i], value(was[0]))
		}
	}
	return true
}

func (u *undoer) remove(parent *yamledit.Node, i int) {
	if u.gone[parent] == nil {
		u.gone[parent] = make(map[int]bool)
	}
	u.gone[parent][i] = true
}

// restore puts a region back as it was written, unless the style of the document has
// become one in which it cannot stand.
func (u *undoer) restore(parent *yamledit.Node, i int, region string) {
	if parent.Flow && strings.Contains(region, "\n") {
		u.edit.Replace(parent, &parent.Pairs[i], value(region))
		return
	}
	u.edit.Restore(&parent.Pairs[i], region)
}

// emptied tells whether nothing is left of n.
func (u *undoer) emptied(n *yamledit.Node) bool {
	return n.Len() > 0 && len(u.gone[n]) == n.Len()
}

// flush removes what is gone, each part once.
func (u *undoer) flush(root *yamledit.Node) {
	gone := u.gone[root]
	if len(gone) > 0 {
		u.edit.Remove(root, func(i int) bool { return gone[i] })
	}
	for i := range root.Len() {
		if !gone[i] {
			u.flush(nth(root, i))
		}
	}
}

// region is the text of a pair's value as a tree.
func regionNode(region string) *yamledit.Node {
	d := yamledit.Split([]byte("v:" + region + "\n"))[0]
	if yamledit.Parse(d) != nil {
		return nil
	}
	return d.Root.Get("v")
}

func sameValue(a, b string) bool {
	return alike(value(a), regionNode(b))
}

// value is what a region means.
func value(region string) any { return decode(regionNode(region)) }

func decode(n *yamledit.Node) any {
	switch {
	case n == nil:
		return nil
	case n.Kind == yamledit.Mapping:
		m := yamledit.Map{}
		for _, p := range n.Pairs {
			m = append(m, yamledit.Entry{Key: p.Key.Text(), Value: decode(p.Value)})
		}
		return m
	case n.Kind == yamledit.Sequence:
		items := []any{}
		for _, item := range n.Items {
			items = append(items, decode(item))
		}
		return items
	case n.IsNull():
		return nil
	}
	raw, text := n.Raw(), n.Text()
	if raw == text { // plain
		if i, err := strconv.ParseInt(text, 10, 64); err == nil {
			return i
		}
		if b, err := strconv.ParseBool(text); err == nil && len(text) > 1 {
			return b
		}
	}
	return text
}

// alike tells whether a node says what value does; a group may say more.
func alike(value any, n *yamledit.Node) bool {
	if n == nil {
		return value == nil
	}
	switch v := value.(type) {
	case nil:
		return n.IsNull()
	case yamledit.Map:
		return n.Kind == yamledit.Mapping && !slices.ContainsFunc(v, func(e yamledit.Entry) bool {
			p := n.Pair(e.Key)
			return p == nil || !alike(e.Value, p.Value)
		})
	case []any:
		if n.Kind != yamledit.Sequence || len(n.Items) < len(v) {
			return false
		}
		for i, item := range v {
			if !alike(item, n.Items[i]) {
				return false
			}
		}
		return true
	}
	return n.Is(scalarText(value))
}

func scalarText(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	text, _ := json.Marshal(v) // a number or bool
	return string(text)
}

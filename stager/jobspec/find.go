package jobspec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// object is one Kubernetes object of a file: a document, or an item of a List.
type object struct {
	doc        *yamledit.Document
	root       *yamledit.Node
	around     []*yamledit.Node // what root stands in
	apiVersion string
	kind, name string
	namespace  string
	templates  []*template
}

// objectsIn are the objects of a parsed document.
func objectsIn(d *yamledit.Document) []*object {
	if d.Root == nil || d.Root.Kind != yamledit.Mapping {
		return nil
	}
	var all []*object
	var add func(n *yamledit.Node, around []*yamledit.Node)
	add = func(n *yamledit.Node, around []*yamledit.Node) {
		kind := n.Get("kind").Text()
		items := n.Get("items")
		if strings.HasSuffix(kind, "List") && items != nil && items.Kind == yamledit.Sequence {
			for _, item := range items.Items {
				add(item, append(slices.Clip(around), n, items))
			}
			return
		}
		o := &object{
			doc: d, root: n, around: around, apiVersion: n.Get("apiVersion").Text(), kind: kind,
			name: n.Get("metadata", "name").Text(), namespace: n.Get("metadata", "namespace").Text(),
		}
		if o.name == "" {
			if generated := n.Get("metadata", "generateName").Text(); generated != "" {
				o.name = strings.TrimRight(generated, "-")
			}
		}
		all = append(all, o)
	}
	add(d.Root, nil)
	return all
}

// template is a pod template of an object: a group with a spec that has containers.
type template struct {
	object *object
	node   *yamledit.Node
	chain  []*yamledit.Node // from the document's root to node, both included
	path   []string         // from the object's root: spec, tasks, [0], template
	kept   []string         // places that inject changed, and others since
}

// Path is spec.tasks[0].template; a Pod's is "".
func (t *template) Path() string {
	return strings.ReplaceAll(strings.Join(t.path, "."), ".[", "[")
}

// findTemplates looks for the pod templates of an object: where path says, or by
// structure.
func (o *object) findTemplates(path string) {
	var want []string
	if path != "" {
		want = strings.Split(strings.ReplaceAll(path, "[", ".["), ".")
	}
	w := walker{chain: slices.Clone(o.around)}
	w.visit = func(n *yamledit.Node) (deeper bool) {
		if path != "" && !w.along(want) {
			return false
		}
		here := isTemplate(n)
		if path != "" {
			here = len(w.steps) == len(want) && n.Get("spec", "containers") != nil
		}
		if here {
			o.templates = append(o.templates, &template{object: o, node: n, chain: slices.Clone(w.chain), path: w.path()})
		}
		return !here
	}
	w.walk(o.root)
}

// likeness is the template of o that stands where another stands in another state of the
// document. Without one it is the other itself.
func (o *object) likeness(of *template) *template {
	if i := slices.IndexFunc(o.templates, func(t *template) bool { return slices.Equal(t.path, of.path) }); i >= 0 {
		return o.templates[i]
	}
	return of
}

// isTemplate tells whether n has a spec with containers, each with a name, or was
// injected before.
func isTemplate(n *yamledit.Node) bool {
	if n.Kind != yamledit.Mapping {
		return false
	}
	containers := n.Get("spec", "containers")
	if containers != nil && n.Get("metadata", "annotations").Get(AnnotationUndo) != nil {
		return true
	}
	return containers != nil && len(containers.Items) > 0 && !slices.ContainsFunc(containers.Items, func(c *yamledit.Node) bool {
		return c.Get("name").Text() == ""
	})
}

// walker goes through all groups and lists below a node, until visit says no.
type walker struct {
	chain []*yamledit.Node // from the document's root to where it is
	steps []step           // the last of these
	visit func(n *yamledit.Node) (deeper bool)
}

// step leads from a node to the i-th of its children.
type step struct {
	from *yamledit.Node
	i    int
}

func (s step) String() string {
	if s.from.Kind == yamledit.Sequence {
		return fmt.Sprintf("[%d]", s.i)
	}
	return s.from.Pairs[s.i].Key.Text()
}

func (w *walker) walk(n *yamledit.Node) {
	w.chain = append(w.chain, n)
	if w.visit(n) {
		for i := range n.Len() {
			if child := nth(n, i); child.Len() > 0 {
				w.steps = append(w.steps, step{n, i})
				w.walk(child)
				w.steps = w.steps[:len(w.steps)-1]
			}
		}
	}
	w.chain = w.chain[:len(w.chain)-1]
}

func (w *walker) path() []string {
	path := make([]string, len(w.steps))
	for i, s := range w.steps {
		path[i] = s.String()
	}
	return path
}

// along tells whether it is on the way to where want says, or there; [] is any item.
func (w *walker) along(want []string) bool {
	path := w.path()
	if len(path) > len(want) {
		return false
	}
	for i, part := range path {
		if part != want[i] && !(want[i] == "[]" && part[0] == '[') {
			return false
		}
	}
	return true
}

// own is an annotation of the template itself, or nil.
func (t *template) own(name string) *yamledit.Node {
	return t.node.Get("metadata", "annotations").Get(name)
}

// find is where a place is: in which node, as which child. The child is -1 where
// there is nothing.
func (t *template) find(p place) (parent *yamledit.Node, child int) {
	n := t.node
	if p[0] == "^" {
		if len(t.chain) < 2 {
			return nil, -1
		}
		n, p = t.chain[len(t.chain)-2], p[1:]
	}
	if len(p) == 0 {
		return nil, -1
	}
	for i, part := range p {
		child := index(n, part)
		if child < 0 || i == len(p)-1 {
			return n, child
		}
		n = nth(n, child)
	}
	return nil, -1
}

// get is the node at a place, or nil.
func (t *template) get(p place) *yamledit.Node {
	if parent, i := t.find(p); i >= 0 {
		return nth(parent, i)
	}
	return nil
}

// annotations are those of stager that hold for a template: its own, and those of
// what it stands in up to the object, as far as the nearer ones do not say otherwise.
func (t *template) annotations() map[string]*yamledit.Node {
	all := make(map[string]*yamledit.Node)
	inside := t.chain[len(t.object.around):]
	for i, n := range inside {
		if n.Kind != yamledit.Mapping {
			continue
		}
		group := n.Get("metadata", "annotations")
		if group == nil {
			continue
		}
		for _, p := range group.Pairs {
			name := p.Key.Text()
			written := name == AnnotationStatus || name == AnnotationUndo
			if strings.HasPrefix(name, prefix) && (!written || i == len(inside)-1) {
				all[name] = p.Value
			}
		}
	}
	return all
}

package jobspec

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// object is one Kubernetes object of a file: a document, or an item of a List.
type object struct {
	doc        *yamledit.Document
	root       *yamledit.Node
	around     []*yamledit.Node // ancestors of root
	apiVersion string
	kind, name string
	namespace  string
	templates  []*template
}

// objectsIn returns the objects of a parsed document.
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

// template is a pod template of an object: a mapping with a spec that has containers. If an object
// has a pod spec without a pod template, template is the mapping with the metadata.
type template struct {
	object *object
	node   *yamledit.Node
	chain  []*yamledit.Node // from the document's root to node, inclusive
	path   []string         // from the object's root: spec, tasks, [0], template
	spec   place            // place of the pod spec in node; "spec" in a pod template
	beside []string         // other pod specs with the same metadata
	kept   []string         // places that inject changed and another program changed again
	wrote  *wroteRecord     // that inject has just written; nil: unknown
}

var inTemplate = place{"spec"}

// Path returns the path of the template, such as spec.tasks[0].template, and "" for a Pod. For a
// pod spec without a template it is the path of the spec.
func (t *template) Path() string {
	path := t.path
	if !slices.Equal(t.spec, inTemplate) {
		path = slices.Concat(t.path, t.spec)
	}
	return strings.ReplaceAll(strings.Join(path, "."), ".[", "[")
}

// pod returns the pod spec.
func (t *template) pod() *yamledit.Node { return t.get(t.spec) }

// findTemplates finds the pod templates of an object: at path, at the paths of its kind, or by
// structure. It also finds templates that were injected before.
func (o *object) findTemplates(path string) {
	if path == "" {
		path = o.podSpecAt()
	}
	var want []string
	if path != "" {
		want = strings.Split(strings.ReplaceAll(path, "[", ".["), ".")
	}
	w := walker{chain: append(make([]*yamledit.Node, 0, depthOfNodes), o.around...), steps: make([]step, 0, depthOfNodes)}
	w.visit = func(n *yamledit.Node) (deeper bool) {
		if n.Kind == yamledit.Mapping && n.Get("metadata", "annotations").Get(AnnotationUndo) != nil {
			if t := (&template{object: o, node: n, chain: slices.Clone(w.chain), path: w.path(), spec: recordedSpec(n)}); t.pod().Get("containers") != nil {
				o.templates = append(o.templates, t)
				return false
			}
		}
		switch {
		case path != "":
			if !w.along(want) {
				return false
			}
			if len(w.steps) == len(want) && isPodSpec(n) {
				o.addPodSpec(&w)
				return false
			}
			if len(w.steps) < len(want) || n.Get("spec", "containers") == nil {
				return true
			}
		case o.opaque():
			return false
		case !isTemplate(n) || len(w.steps) == 0 && o.isFlat():
			return true
		}
		o.templates = append(o.templates, &template{object: o, node: n, chain: slices.Clone(w.chain), path: w.path(), spec: inTemplate})
		return false
	}
	w.walk(o.root)
}

// depthOfNodes is the depth of nearly all manifests.
const depthOfNodes = 12

// addPodSpec adds the pod spec at the walker's position. If its key is "spec", the parent is a pod
// template. Otherwise it belongs to the nearest ancestor with metadata.
func (o *object) addPodSpec(w *walker) {
	owner := len(w.steps) - 1
	if w.steps[owner].String() != "spec" {
		for owner > 0 && (w.steps[owner].from.Kind != yamledit.Mapping || w.steps[owner].from.Get("metadata") == nil) {
			owner--
		}
	}
	t := &template{
		object: o, node: w.steps[owner].from, chain: slices.Clone(w.chain[:len(o.around)+owner+1]),
		path: w.path()[:owner], spec: w.path()[owner:],
	}
	for _, other := range o.templates {
		if other.node == t.node {
			other.beside = append(other.beside, t.Path())
			return
		}
	}
	o.templates = append(o.templates, t)
}

// recordedSpec returns the place of the pod spec in n according to the record.
func recordedSpec(n *yamledit.Node) place {
	var rec struct{ At string }
	note := n.Get("metadata", "annotations", AnnotationUndo)
	if !note.Contains(`"at"`) || json.Unmarshal([]byte(note.Text()), &rec) != nil || rec.At == "" {
		return inTemplate
	}
	return parsePlace(rec.At)
}

// likeness returns the template of o with the same path as a template of another version of the
// document. It returns the other template itself if there is none.
func (o *object) likeness(of *template) *template {
	if i := slices.IndexFunc(o.templates, func(t *template) bool { return t.Path() == of.Path() }); i >= 0 {
		return o.templates[i]
	}
	return of
}

// isTemplate reports whether n has a spec with containers, all of them named.
func isTemplate(n *yamledit.Node) bool { return n.Kind == yamledit.Mapping && isPodSpec(n.Get("spec")) }

// nameless returns the first container of a pod spec that has no name, which hides the pod spec from
// isPodSpec; nil if there is none. Knative's documentation writes its containers without one.
func nameless(spec *yamledit.Node) *yamledit.Node {
	for _, c := range spec.Get("containers").All() {
		if c.Kind == yamledit.Mapping && c.Get("name").Text() == "" {
			return c
		}
	}
	return nil
}

// walker visits all mappings and sequences below a node. It does not descend where visit returns
// false.
type walker struct {
	chain []*yamledit.Node // from the document's root to the current node
	steps []step           // the corresponding suffix of steps
	visit func(n *yamledit.Node) (deeper bool)
}

// step leads from a node to its i-th child.
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

// along reports whether the current path is a prefix of want, or want itself. [] matches any item.
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

// own returns an annotation of the template itself, or nil.
func (t *template) own(name string) *yamledit.Node {
	return t.node.Get("metadata", "annotations").Get(name)
}

// find returns the parent of a place and the index of the child. The index is -1 if the place does
// not exist.
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

// get returns the node at a place, or nil.
func (t *template) get(p place) *yamledit.Node {
	if parent, i := t.find(p); i >= 0 {
		return nth(parent, i)
	}
	return nil
}

// annotations returns stager's annotations that apply to a template: its own and those of its
// ancestors up to the object. The nearest one wins.
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

package jobspec

import (
	"bytes"
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// statusVersion is the first part of a status. A version of stager that injects other parts has
// another.
const statusVersion = "v1;sha256:"

// injector processes one file.
type injector struct {
	opts       Options
	configMaps map[string]string // plans in the file itself, by name
	plans      *plans
	memory     *memory
	result     Result
	faults     Faults

	describing bool // describe each pod, too
	pods       []*Pod
}

// memory holds the trees of one document at a time and is reused for the next.
type memory struct {
	file, clean, result yamledit.Reader // the file's document, without injected parts, and the result
	edit, undo          yamledit.Editor
	spelled             []byte
}

var memories = sync.Pool{New: func() any { return new(memory) }}

// Inject returns a file in which every pod template that requests data contains stager. Templates
// that were injected before are updated. Its errors are of type [Faults]; nothing is changed then.
func Inject(file []byte, opts Options) (*Result, error) {
	return newInjector(file, opts).inject(file)
}

func newInjector(file []byte, opts Options) *injector {
	return &injector{opts: opts, configMaps: plansOf(file), plans: new(plans)}
}

func (in *injector) inject(file []byte) (*Result, error) {
	// Documents are independent, and a file may have thousands. Each is parsed, changed and
	// released separately.
	docs := yamledit.Split(file)
	parts, texts := make([]injector, len(docs)), make([][]byte, len(docs))
	inParallel(len(docs), func(i int) {
		m := memories.Get().(*memory)
		defer memories.Put(m)
		parts[i] = *in
		parts[i].memory = m
		d := *docs[i]
		parts[i].parse(&d)
		texts[i] = parts[i].document(&d)
	})
	for _, part := range parts {
		in.faults = append(in.faults, part.faults...)
		in.result.Objects = append(in.result.Objects, part.result.Objects...)
		in.pods = append(in.pods, part.pods...)
	}
	return in.end(joined(texts))
}

// joined returns the concatenated texts. The result of a large file is so large that a single
// processor would spend most of the time waiting for memory.
func joined(texts [][]byte) []byte {
	starts, size := make([]int, len(texts)), 0
	for i, text := range texts {
		starts[i] = size
		size += len(text)
	}
	out := make([]byte, size)
	inParallel(len(texts), func(i int) { copy(out[starts[i]:], texts[i]) })
	return out
}

// inParallel calls work for all numbers below n, concurrently on all processors.
func inParallel(n int, work func(i int)) {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	const share = 16 // batch size: a goroutine for each number would cost more than it saves
	for from := 0; from < n; from += share {
		group.Go(func() error {
			for i := from; i < min(from+share, n); i++ {
				work(i)
			}
			return nil
		})
	}
	_ = group.Wait() // none fails
}

// Uninject returns a file as it was before [Inject]. Later changes by others are preserved.
func Uninject(file []byte) (*Result, error) {
	in := &injector{memory: new(memory)}
	var out bytes.Buffer
	for _, d := range yamledit.Split(file) {
		in.parse(d)
		var objects []*object
		clean := in.undo(d, func(o *object) { objects = append(objects, o) })
		for _, o := range objects {
			for _, t := range o.templates {
				did := Object{Action: Removed}
				if t.own(AnnotationUndo) == nil {
					did = Object{Action: LeftAlone, Reason: "nothing was injected"}
				}
				for _, path := range t.kept {
					did.Warnings = append(did.Warnings, fmt.Sprintf("%s was changed again after inject had changed it; it is left as it is", parsePlace(path).called()))
				}
				in.report(t, did)
			}
			if len(o.templates) == 0 {
				in.tellBare(o)
			}
		}
		if clean != nil {
			out.Write(clean.Text)
		}
	}
	return in.end(out.Bytes())
}

// Check returns the pod templates of a file that [Inject] would change.
func Check(file []byte, opts Options) (stale []Object, err error) {
	result, err := Inject(file, opts)
	if err != nil {
		return nil, err
	}
	for _, o := range result.Objects {
		if o.Action == Injected || o.Action == Removed {
			stale = append(stale, o)
		}
	}
	return stale, nil
}

func (in *injector) end(out []byte) (*Result, error) {
	if len(in.faults) > 0 {
		slices.SortStableFunc(in.faults, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
		return nil, in.faults
	}
	in.result.Output = out
	return &in.result, nil
}

// parse parses a document and records a fault if that fails.
func (in *injector) parse(d *yamledit.Document) {
	if err := in.memory.file.Parse(d); err != nil {
		in.faults = append(in.faults, unreadable(err))
	}
}

// plansOf returns the plans of the ConfigMaps in a file. It ignores documents that cannot be
// parsed.
func plansOf(file []byte) map[string]string {
	plans := make(map[string]string)
	for _, d := range yamledit.Split(file) {
		if !bytes.Contains(d.Text, []byte("ConfigMap")) || yamledit.Parse(d) != nil {
			continue
		}
		for _, o := range objectsIn(d) {
			if o.kind == "ConfigMap" {
				if text := o.root.Get("data", planKey); text != nil {
					plans[o.name] = text.Text()
				}
			}
		}
	}
	return plans
}

// document injects one document and returns its text.
func (in *injector) document(d *yamledit.Document) []byte {
	var was []*object // as in the file
	clean := in.undo(d, func(o *object) { was = append(was, o) })
	if clean == nil || clean.Root == nil {
		return d.Text
	}
	faults := len(in.faults)
	edit := &in.memory.edit
	edit.Reset(clean)
	var built []*pod
	same := true
	objects := was
	if clean != d {
		objects = in.objects(clean, func(*object) {})
	}
	for i, o := range objects {
		if len(o.templates) == 0 {
			in.tellBare(o)
		}
		for _, t := range o.templates {
			p := in.template(t, was[i].likeness(t), edit)
			if p != nil {
				built = append(built, p)
				if in.describing {
					in.pods = append(in.pods, p.describe(in.result.Objects[len(in.result.Objects)-1]))
				}
			}
			reported := in.result.Objects[len(in.result.Objects)-1].Action
			same = same && reported != Injected && reported != Removed
		}
		if last := len(in.result.Objects) - 1; last >= 0 { // belongs to this object
			reported := &in.result.Objects[last]
			reported.Unmatched = append(reported.Unmatched, o.unmatched()...)
			if reason := o.passedBy(); reason != "" && len(o.templates) == 0 && len(in.opts.Plan) > 0 && len(reported.Unmatched) == 0 {
				reported.Warnings = append(reported.Warnings, "it is not injected: "+reason)
			}
		}
	}
	if same || len(in.faults) > faults {
		return d.Text
	}
	text := edit.Text()
	if err := in.memory.verify(clean, text, built); err != nil {
		in.faults = append(in.faults, Fault{Line: d.Line, Column: 1, Text: err.Error()})
		return d.Text
	}
	return text
}

// template injects one pod template. It returns nil if nothing was injected.
func (in *injector) template(t, before *template, edit *yamledit.Editor) *pod {
	if in.opts.Admission && t.own(AnnotationStatus) != nil {
		in.report(t, Object{Action: Unchanged})
		return nil
	}
	var p *pod
	fault := catch(func() {
		r, why := in.request(t)
		if r == nil {
			action := LeftAlone
			if before.own(AnnotationUndo) != nil {
				action = Removed
			}
			in.report(t, Object{Action: action, Reason: why, Unmatched: t.labelAlone()})
			return
		}
		if len(t.beside) > 0 {
			refuse(nil, "%s and %s have no pod template of their own, and annotations of %s cannot distinguish them; select one with --path", t.Path(), strings.Join(t.beside, ", "), t.object.kind)
		}
		p = newPod(in.opts, t, r)
		p.build()
		p.write(edit, in.memory)
		action := Injected
		if p.stands(before) {
			action = Unchanged
		}
		in.report(t, Object{Action: action, Warnings: p.warnings})
	})
	if fault != nil {
		in.fault(t.object, fault)
		in.report(t, Object{Action: LeftAlone})
		return nil
	}
	return p
}

func (in *injector) fault(o *object, f *Fault) {
	f.Object = Object{Kind: o.kind, Name: o.name}.String()
	if f.Line == 0 {
		f.Line, f.Column = o.root.Position()
	}
	in.faults = append(in.faults, *f)
}

// report adds the result of a template to the list.
func (in *injector) report(t *template, o Object) {
	o.Line, o.Kind, o.Name, o.Template = t.object.doc.Line, t.object.kind, t.object.name, t.Path()
	in.result.Objects = append(in.result.Objects, o)
}

// tellBare reports an object without pod templates.
func (in *injector) tellBare(o *object) {
	in.result.Objects = append(in.result.Objects, Object{
		Line: o.doc.Line, Kind: o.kind, Name: o.name, Action: LeftAlone, Reason: cmp.Or(o.passedBy(), "it has no pod template"),
	})
}

// verify checks the guarantees of this package for a changed document: it contains the injected
// parts, and removing them restores the original.
func (m *memory) verify(clean *yamledit.Document, text []byte, built []*pod) error {
	refused := fmt.Errorf("this document is written in a way that cannot be changed safely; rewrite it, for example with kubectl create --dry-run=client -o yaml")
	d := &yamledit.Document{Text: text, Line: clean.Line}
	if err := m.result.Parse(d); err != nil {
		return fmt.Errorf("%w (%w)", refused, err)
	}
	in := &injector{memory: m}
	i := 0
	objects := in.objects(d, func(o *object) {
		for _, t := range o.templates {
			if i < len(built) && t.own(AnnotationUndo) != nil {
				t.wrote = &built[i].wrote
				if built[i].missing(t) {
					i = len(built)
				}
				i++
			}
		}
	})
	u, changed := in.without(d, objects, false)
	restores := len(in.faults) == 0 && changed && u.edit.Yields(clean.Text) ||
		len(in.faults) == 0 && !changed && bytes.Equal(text, clean.Text)
	if i != len(built) || !restores {
		return refused
	}
	return nil
}

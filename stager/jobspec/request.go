package jobspec

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
	"github.com/stager-dev/stager/stager/plan"
)

// request is what a pod template requests.
type request struct {
	text       string // the plan as the pods receive it
	plan       *plan.StagePlan
	containers []string
	finalize   string
	gate       string
	count      string
	privileges string // PrivilegesFiles, or ""
	image      string // "": the image of the options
	size       size   // zero fields: the defaults
}

// planMax is the largest plan in bytes. It is less than an environment variable can hold.
const planMax = 100 << 10

// request parses the annotations of a template. It returns nil and the reason if the template
// requests no data.
func (in *injector) request(t *template) (r *request, why string) {
	notes := t.annotations()
	names := sortedKeys(notes)
	for _, name := range names {
		known(name, notes[name])
	}
	if in.optedOut(t) {
		return nil, "it says " + LabelInject + ": false"
	}
	text, at := in.base(t, notes)
	inputs, outputs := entries(notes, names, AnnotationInput), entries(notes, names, AnnotationOutput)
	key, made := text, text == "" // key is equal for all plans that differ only in their name
	switch {
	case len(inputs)+len(outputs) > 0 && text == "":
		text, key = begin(t.object.name, inputs, outputs)
	case len(inputs)+len(outputs) > 0:
		text = extend(text, at, inputs, outputs)
		key = text
	case text == "":
		return nil, "it requests no data: it has no annotation " + prefix + "…"
	}
	if len(text) > planMax {
		refuse(at, "the plan has %d bytes, and %d fit into a pod's environment", len(text), planMax)
	}
	p, err := in.plans.parse(key, text, in.opts)
	var faults plan.Faults
	switch {
	case errors.As(err, &faults) && made:
		refuseEntries(faults, inputs, outputs)
	case err != nil:
		refuse(at, "the plan is invalid:\n%v", err)
	}
	r = &request{
		text: text, plan: p,
		finalize: choice(notes[AnnotationFinalize], in.opts.Finalize, FinalizeAuto, FinalizeSidecar, FinalizeWrap, FinalizeRun),
		gate:     choice(notes[AnnotationGate], in.opts.Gate, gateFor(p), GateInit, GateStartup, GateNone),
		count:    notes[AnnotationCount].Text(), privileges: privilegesOf(notes[AnnotationPrivileges]),
	}
	r.image, r.size = imageOf(notes[AnnotationImage]), sizeOf(notes)
	if n := notes[AnnotationContainers]; n != nil {
		for name := range strings.SplitSeq(n.Text(), ",") {
			r.containers = append(r.containers, strings.TrimSpace(name))
		}
	}
	return r, ""
}

// gateFor returns the default gate of a plan.
func gateFor(p *plan.StagePlan) string {
	for _, in := range p.Spec.Inputs {
		if w := in.Window; w != nil && w.MinReady != (plan.MinReady{}) {
			return GateStartup
		}
	}
	return GateInit
}

func (in *injector) optedOut(t *template) bool {
	return t.node.Get("metadata", "labels").Get(LabelInject).Text() == "false" ||
		t.object.root.Get("metadata", "labels").Get(LabelInject).Text() == "false"
}

// annotationMax is the maximum length of an annotation name after its prefix.
const annotationMax = 63

// known refuses unknown annotations.
func known(name string, at *yamledit.Node) {
	if n := len(name) - len(prefix); n > annotationMax {
		refuse(at, "the annotation %s…%s has %d characters after the /, and Kubernetes allows %d; use a shorter name", name[:len(prefix)+10], name[len(name)-10:], n, annotationMax)
	}
	for _, group := range []string{AnnotationInput, AnnotationOutput} {
		if rest, ok := strings.CutPrefix(name, group); ok && rest != "" {
			return
		}
	}
	var keys []string // of users, without a name
	for _, a := range Annotations {
		if strings.HasSuffix(a.Key, ".") {
			continue
		}
		if a.Key == name {
			return
		}
		if !a.Written {
			keys = append(keys, a.Key)
		}
	}
	refuse(at, "the annotation %s is not known; known are %sNAME, %sNAME, %s", name, AnnotationInput, AnnotationOutput, strings.Join(keys, ", "))
}

// choice returns the value of an annotation or, without one, the first fallback that is not empty.
func choice(n *yamledit.Node, fallback string, allowed ...string) string {
	value := n.Text()
	switch {
	case n == nil && fallback != "":
		value = fallback
	case n == nil:
		return allowed[0]
	}
	if !slices.Contains(allowed, value) {
		slices.Sort(allowed)
		refuse(n, "unknown value %q; use %s", value, strings.Join(slices.Compact(allowed), " or "))
	}
	return value
}

// base returns the text of the plan that annotations or options name.
func (in *injector) base(t *template, notes map[string]*yamledit.Node) (text string, at *yamledit.Node) {
	inline, named := notes[AnnotationPlanYAML], notes[AnnotationPlan]
	if inline != nil && named != nil && named.Text() != "inline" {
		refuse(named, "%s and %s both set a plan; keep one", AnnotationPlan, AnnotationPlanYAML)
	}
	switch {
	case inline != nil:
		return inline.Text(), inline
	case named == nil:
		return string(in.opts.Plan), nil
	}
	name, ok := strings.CutPrefix(named.Text(), "configmap:")
	if !ok || name == "" {
		refuse(named, "%q names no plan; write configmap:NAME, or the plan itself under %s", named.Text(), AnnotationPlanYAML)
	}
	if text, ok := in.configMaps[name]; ok {
		return text, named
	}
	if in.opts.ConfigMap != nil {
		if text, ok := in.opts.ConfigMap(t.object.namespace, name); ok {
			return string(text), named
		}
	}
	if in.opts.Plan != nil {
		return string(in.opts.Plan), named
	}
	if in.opts.Admission {
		refuse(named, "the webhook found no ConfigMap %s with the key %s in this namespace; create it with the label %s, whose ConfigMaps are read every 10 s, or write the plan itself as the annotation %s",
			name, planKey, AnnotationPlan, AnnotationPlanYAML)
	}
	refuse(named, "the ConfigMap %s with its key %s was not found; add its file, or set the plan with --plan", name, planKey)
	return "", nil
}

// planKey is the key of the plan in a ConfigMap.
const planKey = "plan.yaml"

// entry is an input or output written as one annotation.
type entry struct {
	name string
	at   *yamledit.Node
}

// entries returns the annotations of a group. names are the sorted names of all annotations.
func entries(notes map[string]*yamledit.Node, names []string, group string) (all []entry) {
	for _, key := range names {
		if name, ok := strings.CutPrefix(key, group); ok {
			all = append(all, entry{name, notes[key]})
		}
	}
	return all
}

// lists returns annotation entries as lists of a plan's spec. It leaves out empty lists.
func lists(inputs, outputs []entry) (spec yamledit.Map) {
	var volumes, ins, outs []any
	for _, e := range inputs {
		m, volume := e.input()
		ins = append(ins, m)
		volumes = append(volumes, volume...)
	}
	for _, e := range outputs {
		m, volume := e.output()
		outs = append(outs, m)
		volumes = append(volumes, volume...)
	}
	for _, part := range []yamledit.Entry{{Key: "volumes", Value: volumes}, {Key: "inputs", Value: ins}, {Key: "outputs", Value: outs}} {
		if list, _ := part.Value.([]any); len(list) > 0 {
			spec = append(spec, part)
		}
	}
	return spec
}

// refuseEntries reports the faults of a plan that was generated from annotations. It attributes
// them to the annotations, because users do not see that plan.
func refuseEntries(faults plan.Faults, inputs, outputs []entry) {
	var names []string
	var at *yamledit.Node
	for _, list := range []struct {
		name, group string
		entries     []entry
	}{{"inputs", AnnotationInput, inputs}, {"outputs", AnnotationOutput, outputs}} {
		for i, e := range list.entries {
			where := fmt.Sprintf("spec.%s[%d].", list.name, i)
			names = append(names, where, list.group+e.name+": ")
			if strings.HasPrefix(faults[0].Path, where) {
				at = e.at
			}
		}
	}
	words := make([]string, len(faults))
	for i, f := range faults {
		f.Line = 0 // the line is not one of the file
		words[i] = strings.NewReplacer(names...).Replace(f.String())
	}
	refuse(at, "%s", strings.Join(words, "\n"))
}

// begin generates a plan from annotation entries. The spec is the part that is equal for all jobs
// with the same entries.
func begin(name string, inputs, outputs []entry) (text, spec string) {
	spec = yamledit.Marshal(yamledit.Map{{Key: "spec", Value: lists(inputs, outputs)}})
	return yamledit.Marshal(yamledit.Map{
		{Key: "apiVersion", Value: plan.APIVersion},
		{Key: "kind", Value: plan.Kind},
		{Key: "metadata", Value: yamledit.Map{{Key: "name", Value: planName(name)}}},
	}) + spec, spec
}

// extend adds annotation entries to the text of a plan.
func extend(text string, at *yamledit.Node, inputs, outputs []entry) string {
	d := yamledit.Split([]byte(text))[0]
	if err := yamledit.Parse(d); err != nil || d.Root == nil {
		refuse(at, "the plan is invalid: %v", err)
	}
	var add branch
	for _, part := range lists(inputs, outputs) {
		items, _ := part.Value.([]any)
		for _, item := range items {
			m := item.(yamledit.Map)
			where := place{"spec", part.Key, "name=" + fmt.Sprint(m[0].Value)}
			if spec := d.Root.Get("spec", part.Key); spec != nil && index(spec, where[2]) >= 0 {
				refuse(at, "the plan and an annotation both have %s in %s; use different names", m[0].Value, part.Key)
			}
			add.put(where, m)
		}
	}
	a := applier{edit: yamledit.NewEditor(d)}
	a.apply(d.Root, &add, nil)
	return string(a.edit.Text())
}

// planName derives the name of a plan from an object's name, which may be invalid: the API server
// validates it.
func planName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	return cmp.Or(strings.Trim(name[:min(len(name), 63)], "-"), "job")
}

// plans caches the plans of a file. Each is parsed once, because many jobs share a plan. The plans
// must not be modified.
type plans struct{ known sync.Map }

// parse parses a plan. Texts with the same key have the same faults.
func (p *plans) parse(key, text string, opts Options) (*plan.StagePlan, error) {
	if known, ok := p.known.Load(key); ok {
		return known.(*plan.StagePlan), nil
	}
	fresh, err := plan.ParseWith([]byte(text), opts.CheckURL, opts.destinations())
	if err == nil {
		p.known.Store(key, fresh)
	}
	return fresh, err
}

// ConfigMaps returns a function for [Options.ConfigMap]. It finds plans in the ConfigMaps of files
// and ignores namespaces. It skips files that cannot be parsed.
func ConfigMaps(files ...[]byte) func(namespace, name string) ([]byte, bool) {
	plans := make(map[string]string)
	for _, file := range files {
		maps.Copy(plans, plansOf(file))
	}
	return func(_, name string) ([]byte, bool) {
		text, ok := plans[name]
		return []byte(text), ok
	}
}

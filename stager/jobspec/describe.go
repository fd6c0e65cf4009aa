package jobspec

import (
	"cmp"
	"path"
	"slices"
	"strconv"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
	"github.com/stager-dev/stager/stager/plan"
)

// Pod describes the pods of one template that [Inject] puts stager into: what is known
// before any of them runs.
type Pod struct {
	Object
	// Found says how the template was found: as that of a known kind, by its structure, or
	// by Options.Path.
	Found string
	Plan  *plan.StagePlan
	Job   string // the object's name; pods may have another value for {job}
	Role  string // which part of the job the pods are; "": it has only one
	// Pods is how many there are, as far as the object says.
	Pods Count
	// Sharing is among how many pods the inputs are divided; 1: each pod takes all, 0: it is
	// known in the pod only.
	Sharing int
	// Finalize and Gate are what holds after the defaults: [FinalizeSidecar], [FinalizeWrap] or
	// [FinalizeRun], and [GateInit], [GateStartup] or [GateNone].
	Finalize, Gate string
	Targets        []string // containers that work with the data; the first is charged for RAM disks
	Dirs           []Dir    // of all inputs, then of all outputs
	Parts          []Part   // all that was put in
	Containers     []Container
	Grace          int64 // terminationGracePeriodSeconds with stager in the pod
	// Line is that of the pod template in the file, from 1.
	Line int
}

// Dir is where the files of an input or output lie in the pod.
type Dir struct {
	Kind   string // "input" or "output"
	Name   string
	Path   string // up to the first placeholder
	Volume string // of the pod
	Mount  string // where the volume is mounted
	// Medium is what the volume is: disk (an emptyDir on the node's disk), memory (an emptyDir in
	// RAM), or the type of any other volume, such as persistentVolumeClaim.
	Medium string
	Limit  plan.Bytes // of the volume; 0: none
	Own    bool       // the volume was put in; false: it is the pod's
	// Annotation is the annotation that asks for the directory, and Line its line in the file; both
	// are empty where a plan does.
	Annotation string
	Line       int
}

// Container is one of the pod with stager in it, and what it asks for.
type Container struct {
	Name             string
	Init             bool // it ends before the job's containers begin
	Sidecar          bool // it begins before them and runs beside them
	Own              bool // it was put in
	Requests, Limits Resources
	Line             int // of the user's, in the file
}

// Resources are those that decide whether bytes fit; 0 is not said.
type Resources struct{ Memory, Disk plan.Bytes }

// Describe is [Inject] that also describes each pod template into which stager was put, in
// the order of the file.
func Describe(file []byte, opts Options) (*Result, []*Pod, error) {
	in := newInjector(file, opts)
	in.describing = true
	result, err := in.inject(file)
	if err != nil {
		return nil, nil, err
	}
	describeContainers(result.Output, opts, in.pods)
	return result, in.pods, nil
}

// describe returns what is known of a pod that has been built.
func (p *pod) describe(o Object) *Pod {
	d := &Pod{
		Object: o, Found: p.t.found(p.opts.Path), Plan: p.req.plan, Job: p.t.object.name, Role: p.job.role,
		Pods: p.t.count(), Sharing: p.sharing(), Finalize: p.finalizes(), Gate: p.req.gate, Targets: p.names,
	}
	d.Line, _ = p.t.node.Position()
	if d.Line == 0 {
		d.Line = o.Line
	}
	for _, f := range p.dirs() {
		d.Dirs = append(d.Dirs, p.describeDir(f))
	}
	d.Parts = p.parts()
	for _, list := range []string{"initContainers", "containers"} { // those of stager come by describeContainers
		for _, c := range p.spec(list).All() {
			line, _ := c.Position()
			d.Containers = append(d.Containers, Container{Name: c.Get("name").Text(), Line: line})
		}
	}
	return d
}

// found says how a template came to be one.
func (t *template) found(path string) string {
	switch {
	case path != "":
		return "by --path " + path
	case t.known() != nil:
		return "a kind that stager knows"
	}
	return "by its structure: a spec with containers"
}

// finalizes is how outputs are saved at the end.
func (p *pod) finalizes() string {
	switch {
	case p.shape.inside:
		return FinalizeRun
	case p.shape.wrap:
		return FinalizeWrap
	}
	return FinalizeSidecar
}

// sharing is among how many pods the inputs are divided.
func (p *pod) sharing() int {
	shard := p.req.plan.Spec.Shard
	count := cmp.Or(p.req.count, p.job.count)
	switch shard.By {
	case plan.ShardNone:
		return 1
	case plan.ShardExplicit:
		count = shard.Count // a number, or a variable of the pod
	default:
		if count == "" && p.job.caution == "" {
			return 1
		}
	}
	n, _ := strconv.Atoi(count)
	return n
}

func (p *pod) describeDir(f dir) Dir {
	d := Dir{Kind: f.kind, Name: f.name, Path: f.path}
	for _, m := range p.mounts {
		if within(f.path, m.path) && (d.Mount == "" || len(m.path) > len(d.Mount)) {
			d.Volume, d.Mount, d.Limit, d.Own = m.volume, m.path, m.bytes, m.source != nil
			d.Medium = p.medium(m)
		}
	}
	if d.Limit == 0 { // counted at the first of several mounts of one volume
		for _, m := range p.mounts {
			if m.volume == d.Volume {
				d.Limit = max(d.Limit, m.bytes)
			}
		}
	}
	name := AnnotationInput + f.name
	if f.kind == ofOutput {
		name = AnnotationOutput + f.name
	}
	if n := p.t.annotations()[name]; n != nil {
		d.Annotation = name
		d.Line, _ = n.Position()
	}
	return d
}

// medium is what a mount's volume is.
func (p *pod) medium(m mount) string {
	if m.source != nil {
		switch kind := m.source[0].Key; {
		case m.memory:
			return "memory"
		case kind == "emptyDir":
			return "disk"
		default:
			return kind
		}
	}
	v := p.spec("volumes").Item("name", m.volume)
	if v == nil {
		return "persistentVolumeClaim" // of a StatefulSet's templates
	}
	for _, pair := range v.Pairs {
		switch kind := pair.Key.Text(); {
		case kind == "name":
		case kind == "emptyDir" && pair.Value.Get("medium").Text() == "Memory":
			return "memory"
		case kind == "emptyDir":
			return "disk"
		default:
			return kind
		}
	}
	return "disk" // an emptyDir without a word
}

// describeContainers adds what all containers ask for, from the file with stager in it: that is
// what the cluster sees.
func describeContainers(output []byte, opts Options, pods []*Pod) {
	i := 0
	for _, d := range yamledit.Split(output) {
		if yamledit.Parse(d) != nil {
			continue
		}
		for _, o := range objectsIn(d) {
			o.findTemplates(opts.Path)
			for _, t := range o.templates {
				if t.own(AnnotationUndo) == nil || i >= len(pods) {
					continue
				}
				pods[i].Containers = containersOf(t, pods[i].Containers)
				pods[i].Grace = int64(number(t.pod(), "terminationGracePeriodSeconds", 30))
				i++
			}
		}
	}
}

// containersOf are the containers of a template; of the user's the lines are known.
func containersOf(t *template, users []Container) (all []Container) {
	for _, list := range []string{"initContainers", "containers"} {
		for _, n := range t.pod().Get(list).All() {
			c := Container{Name: n.Get("name").Text(), Own: true}
			if i := slices.IndexFunc(users, func(u Container) bool { return u.Name == c.Name }); i >= 0 {
				c.Own, c.Line = false, users[i].Line
			}
			if list == "initContainers" {
				c.Sidecar = n.Get("restartPolicy").Text() == "Always"
				c.Init = !c.Sidecar
			}
			c.Requests, c.Limits = resourcesOf(n.Get("resources", "requests")), resourcesOf(n.Get("resources", "limits"))
			all = append(all, c)
		}
	}
	return all
}

func resourcesOf(n *yamledit.Node) (r Resources) {
	_ = catch(func() { r = Resources{bytesOf(n.Get("memory")), bytesOf(n.Get("ephemeral-storage"))} }) // what is no quantity was refused
	return r
}

// on are the inputs and outputs whose directories lie below a path, or on a volume.
func (p *pod) on(volume, below string) (things []string) {
	for _, m := range p.mounts {
		if volume != "" && m.volume != volume || below != "" && m.path != below {
			continue
		}
		for _, f := range p.dirs() {
			if thing := f.kind + " " + f.name; within(f.path, path.Clean(m.path)) && !slices.Contains(things, thing) {
				things = append(things, thing)
			}
		}
	}
	return things
}

// opens are the inputs and outputs whose stores a Secret opens.
func (p *pod) opens(secret string) (things []string) {
	for _, in := range p.req.plan.Spec.Inputs {
		if slices.ContainsFunc(in.From(), func(from plan.Source) bool { return from.Credentials.Secret == secret }) {
			things = append(things, ofInput+" "+in.Name)
		}
	}
	for _, out := range p.req.plan.Spec.Outputs {
		if out.Credentials.Secret == secret {
			things = append(things, ofOutput+" "+out.Name)
		}
	}
	return things
}

// served are the inputs and outputs that a container of stager's works for.
func (p *pod) served(container string) (things []string) {
	for _, in := range p.req.plan.Spec.Inputs {
		prefetched := in.Mode == plan.ModePrefetch && p.shape.prefetch
		if prefetched == (container == ContainerPrefetch) {
			things = append(things, ofInput+" "+in.Name)
		}
	}
	if container != ContainerPrefetch {
		for _, out := range p.req.plan.Spec.Outputs {
			things = append(things, ofOutput+" "+out.Name)
		}
	}
	return things
}

// thing is "input train" of the name of a variable such as STAGER_INPUT_TRAIN; "": it is none.
func (p *pod) thing(name string) string {
	for _, in := range p.req.plan.Spec.Inputs {
		if plan.Variable("INPUT", in.Name) == name {
			return ofInput + " " + in.Name
		}
	}
	for _, out := range p.req.plan.Spec.Outputs {
		if plan.Variable("OUTPUT", out.Name) == name {
			return ofOutput + " " + out.Name
		}
	}
	return ""
}

// everything are all inputs and outputs.
func (p *pod) everything() (things []string) {
	for _, f := range p.dirs() {
		things = append(things, f.kind+" "+f.name)
	}
	return things
}

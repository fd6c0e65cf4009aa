package jobspec

import (
	"cmp"
	"path"
	"slices"
	"strconv"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
	"github.com/stager-dev/stager/stager/plan"
)

// Pod describes the pods of one injected template, as far as that is known before they run.
type Pod struct {
	Object
	// Found is how the template was found: by a known kind, by its structure, or by Options.Path.
	Found string
	Plan  *plan.StagePlan
	Job   string // the object's name; pods may have another value for {job}
	Role  string // the part of the job to which the pods belong; "": it has one part
	// Pods is the number of pods, as far as the object defines it.
	Pods Count
	// Sharing is the number of pods that divide the inputs; 1: each pod reads all, 0: known only in
	// the pod.
	Sharing int
	// Finalize and Gate are the effective values, after defaults: [FinalizeSidecar], [FinalizeWrap]
	// or [FinalizeRun], and [GateInit], [GateStartup] or [GateNone].
	Finalize, Gate string
	Targets        []string // containers that use the data; RAM disks are charged to the first
	Dirs           []Dir    // of all inputs, then of all outputs
	Parts          []Part   // everything that was added
	Containers     []Container
	Grace          int64 // terminationGracePeriodSeconds with stager in the pod
	// Line is the line of the pod template in the file, from 1.
	Line int
}

// Dir is the directory of an input or output in the pod.
type Dir struct {
	Kind   string // "input" or "output"
	Name   string
	Path   string // up to the first placeholder
	Volume string // name in the pod
	Mount  string // mount path of the volume
	// Medium is the kind of volume: disk (an emptyDir on the node's disk), memory (an emptyDir in
	// RAM), or the type of any other volume, such as persistentVolumeClaim.
	Medium string
	Limit  plan.Bytes // of the volume; 0: none
	Own    bool       // the volume was added; false: it is the pod's
	// Annotation is the annotation that declares the directory, and Line its line in the file. Both
	// are zero if a plan declares it.
	Annotation string
	Line       int
}

// Container is a container of the injected pod and its resources.
type Container struct {
	Name             string
	Init             bool // ends before the job's containers start
	Sidecar          bool // starts before the job's containers and runs concurrently
	Own              bool // was added
	Requests, Limits Resources
	Line             int // line of a user's container in the file
}

// Resources are the resources that limit the amount of data; 0: not set.
type Resources struct{ Memory, Disk plan.Bytes }

// Describe calls [Inject] and also returns a description of each injected pod template, in the
// order of the file.
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

// describe returns the description of a built pod.
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
	for _, list := range []string{"initContainers", "containers"} { // describeContainers adds those of stager
		for _, c := range p.spec(list).All() {
			line, _ := c.Position()
			d.Containers = append(d.Containers, Container{Name: c.Get("name").Text(), Line: line})
		}
	}
	return d
}

// found returns how a template was found.
func (t *template) found(path string) string {
	switch {
	case path != "":
		return "by --path " + path
	case t.known() != nil:
		return "a kind that stager knows"
	}
	return "by its structure: a spec with containers"
}

// finalizes returns the effective Finalize.
func (p *pod) finalizes() string {
	switch {
	case p.shape.inside:
		return FinalizeRun
	case p.shape.wrap:
		return FinalizeWrap
	}
	return FinalizeSidecar
}

// sharing returns the number of pods that divide the inputs.
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
	if d.Limit == 0 { // counted at the first of several mounts of a volume
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

// medium returns the kind of a mount's volume.
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
		return "persistentVolumeClaim" // of a StatefulSet's claim templates
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
	return "disk" // an emptyDir written as nothing
}

// describeContainers adds the resources of all containers. It reads them from the injected file,
// which is what the cluster sees.
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

// containersOf returns the containers of a template, with the lines of the user's containers.
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
	_ = catch(func() { r = Resources{bytesOf(n.Get("memory")), bytesOf(n.Get("ephemeral-storage"))} }) // invalid quantities were refused before
	return r
}

// on returns the inputs and outputs whose directories are below a path or on a volume.
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

// opens returns the inputs and outputs whose stores need a Secret.
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

// served returns the inputs and outputs that one of stager's containers handles.
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

// thing returns "input train" for a variable such as STAGER_INPUT_TRAIN, and "" for other
// variables.
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

// everything returns all inputs and outputs.
func (p *pod) everything() (things []string) {
	for _, f := range p.dirs() {
		things = append(things, f.kind+" "+f.name)
	}
	return things
}

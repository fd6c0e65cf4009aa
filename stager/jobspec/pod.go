package jobspec

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
	"github.com/stager-dev/stager/stager/plan"
)

// pod processes one pod template: what it contains, what follows from that, and the resulting
// changes.
type pod struct {
	opts     Options
	t        *template
	req      *request
	job      jobIdentity
	changes  branch
	warnings []string

	common  []variable       // of all containers
	targets []*yamledit.Node // containers that use the data; resources are charged to the first
	names   []string         // names of targets
	mounts  []mount
	volumes volumeNames
	shape   shape
	user    user
	sizes   sizes
	wrote   wroteRecord
}

// wroteRecord is a record and its text.
type wroteRecord struct {
	record record
	text   string
}

// shape defines which containers the plan needs.
type shape struct {
	sidecar, prefetch bool
	split             bool // the prefetch container fetches prefetched inputs, and the sidecar fetches the others
	wrap              bool // the job's container ends only when the sidecar has saved its outputs
	inside            bool // stager runs only in the job's container
}

func newPod(opts Options, t *template, r *request) *pod {
	f := t.job()
	if opts.Admission && opts.Owner != nil {
		f.learn(opts.Owner, t)
	}
	return &pod{opts: opts, t: t, req: r, job: f}
}

// warn adds a warning, once for all containers.
func (p *pod) warn(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(p.warnings, text) {
		p.warnings = append(p.warnings, text)
	}
}

// spec returns a part of the pod spec, or nil.
func (p *pod) spec(keys ...string) *yamledit.Node { return p.t.pod().Get(keys...) }

// build computes all changes.
func (p *pod) build() {
	p.preconditions()
	if p.job.needs != "" {
		p.warn("%s", p.job.needs)
	}
	p.findTargets()
	p.findShape()
	p.placeVolumes()
	p.user = p.findUser()
	p.measure()

	switch {
	case p.shape.inside:
		p.runInside()
	default:
		p.containers()
	}
	for i := range p.targets {
		p.equip(i)
	}
	p.restoring()
	p.addVolumes()
	p.finish()
	p.grace()
	p.firstProcess()
	p.nodes()
	p.policies()
}

// preconditions refuses pods that cannot be injected.
func (p *pod) preconditions() {
	if os := p.spec("os", "name"); os.Text() == "windows" {
		refuse(os, "stager does not run on Windows nodes")
	}
	if c := nameless(p.t.pod()); c != nil {
		refuse(c, "this container has no name; write one, such as name: main")
	}
	for _, list := range []string{"containers", "initContainers"} {
		for _, c := range p.spec(list).All() {
			switch c.Get("name").Text() {
			case ContainerSidecar, ContainerPrefetch, ContainerInstall:
				refuse(c, "the container %s already exists and was not injected; remove it, or remove the annotations %s… of this pod", c.Get("name").Text(), prefix)
			}
		}
	}
}

// findTargets selects the named containers, or kubectl's default container, or the first.
func (p *pod) findTargets() {
	containers := p.spec("containers")
	names := p.req.containers
	if usual := p.t.own("kubectl.kubernetes.io/default-container"); len(names) == 0 && containers.Item("name", usual.Text()) != nil {
		names = []string{usual.Text()}
	}
	if len(names) == 0 {
		names = []string{containers.Items[0].Get("name").Text()}
	}
	for _, name := range names {
		c := containers.Item("name", name)
		if c == nil {
			var there []string
			for _, c := range containers.Items {
				there = append(there, c.Get("name").Text())
			}
			refuse(containers, "there is no container %q, which %s names; there are %s", name, AnnotationContainers, strings.Join(there, ", "))
		}
		p.targets = append(p.targets, c)
	}
	p.names = names
}

// findShape decides which containers are added.
func (p *pod) findShape() {
	windows, inputs := 0, len(p.req.plan.Spec.Inputs)
	for _, in := range p.req.plan.Spec.Inputs {
		if in.Mode == plan.ModeWindow {
			windows++
		}
	}
	serves := windows+len(p.req.plan.Spec.Outputs) > 0
	s := &p.shape
	switch {
	case p.req.finalize == FinalizeRun:
		s.inside = true
		return
	case p.req.gate == GateInit || p.req.gate == GateStartup:
		s.prefetch, s.sidecar = inputs > 0, serves
		s.split = s.prefetch && s.sidecar
	default:
		s.sidecar = true
	}
	if s.sidecar && p.opts.Kubernetes != "" && older(p.opts.Kubernetes, 1, 29) {
		refuse(nil, "a sidecar needs Kubernetes 1.29, and the cluster has %s; use %s: %s, which needs none", p.opts.Kubernetes, AnnotationFinalize, FinalizeRun)
	}
	s.wrap = p.wraps()
}

// older reports whether a version is less than major.minor.
func older(version string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &a, &b); n < 2 {
		refuse(nil, "%q is not a version of Kubernetes; write one like 1.31", version)
	}
	return a < major || a == major && b < minor
}

// finish warns about outputs whose last files may not be saved.
func (p *pod) finish() {
	for _, out := range p.req.plan.Spec.Outputs {
		if caution := out.Caution(); caution != "" {
			p.warn("output %s: %s", out.Name, caution)
		}
	}
}

// grace extends the grace period to the longest upload deadline.
func (p *pod) grace() {
	var longest time.Duration
	for _, out := range p.req.plan.Spec.Outputs {
		longest = max(longest, time.Duration(out.Deadline))
	}
	if longest == 0 {
		return
	}
	need := int64((longest + 30*time.Second + time.Second - 1) / time.Second)
	const key = "terminationGracePeriodSeconds"
	has := int64(number(p.t.pod(), key, 30))
	if has >= need {
		return
	}
	defaulted := p.opts.Admission && has == 30 // the API server has filled it in
	if !p.spec(key).IsNull() && !defaulted {
		p.warn("%s was %d and is now %d: the last upload may take %s", key, has, need, longest)
	}
	p.put(at("spec", key), need)
}

// shells are programs that ignore SIGTERM as the first process of a container, unless they trap it.
var shells = []string{"sh", "bash", "dash", "ash", "zsh", "ksh"}

// firstProcess warns about commands that SIGTERM does not reach. When their pods are deleted, the
// pods and the drain of a node wait for the entire grace period.
func (p *pod) firstProcess() {
	if len(p.req.plan.Spec.Outputs) == 0 || p.shape.wrap || p.shape.inside || p.spec("shareProcessNamespace").Text() == "true" {
		return
	}
	for i, target := range p.targets {
		if words := target.Get("command").All(); len(words) > 0 && slices.Contains(shells, path.Base(words[0].Text())) {
			p.warn("the command of container %s is a shell, which ignores SIGTERM as the first process of a container unless it traps it: a deleted pod waits for the entire grace period, even if its outputs are saved; set a trap, or use %s: %s",
				p.names[i], AnnotationFinalize, FinalizeWrap)
		}
	}
}

// nodes adds the plan's nodeSelector.
func (p *pod) nodes() {
	selector := p.spec("nodeSelector")
	for _, name := range sortedKeys(p.req.plan.Spec.NodeSelector) {
		want := p.req.plan.Spec.NodeSelector[name]
		switch has := selector.Get(name); {
		case has == nil:
			p.put(at("spec", "nodeSelector", name), want)
		case has.Text() != want:
			refuse(has, "the pod selects nodes with %s: %s, and the plan nodes with %s; use the same value in both", name, has.Text(), want)
		}
	}
}

// hopeless are the exit codes after which a retry cannot succeed.
var hopeless = []any{int64(64), int64(66), int64(76), int64(77), int64(78)}

// policies makes a Job fail if a retry cannot succeed, but not if its node was lost.
func (p *pod) policies() {
	job := p.job.jobSpec
	if job == nil {
		return
	}
	serves := len(p.req.plan.Spec.Outputs) > 0
	replacement := job.Get("podReplacementPolicy")
	if !p.opts.JobPolicies {
		if serves && replacement.Text() != "Failed" && job.Get("podFailurePolicy") == nil {
			p.warn("the Job starts a replacement while a pod is still saving its outputs; set podReplacementPolicy: Failed to make it wait")
		}
		return
	}
	if replacement == nil {
		p.put(at("^", "podReplacementPolicy"), "Failed")
	}
	if p.spec("restartPolicy").Text() != "Never" || job.Get("podFailurePolicy") != nil {
		return
	}
	who := ""
	switch {
	case p.shape.inside:
		who = p.names[0]
	case p.shape.prefetch:
		who = ContainerPrefetch
	}
	p.put(at("^", "podFailurePolicy"), failurePolicy(who))
}

// failurePolicy returns a podFailurePolicy based on the exit codes of a container; "": no exit code
// counts.
func failurePolicy(container string) yamledit.Map {
	var rules []any
	if container != "" {
		rules = append(rules, yamledit.Map{
			{Key: "action", Value: "FailJob"},
			{Key: "onExitCodes", Value: yamledit.Map{
				{Key: "containerName", Value: container}, {Key: "operator", Value: "In"}, {Key: "values", Value: hopeless},
			}},
		})
	}
	rules = append(rules, yamledit.Map{
		{Key: "action", Value: "Ignore"},
		{Key: "onPodConditions", Value: []any{yamledit.Map{{Key: "type", Value: "DisruptionTarget"}, {Key: "status", Value: "True"}}}},
	})
	return yamledit.Map{{Key: "rules", Value: rules}}
}

// put adds a change.
func (p *pod) put(where place, value any) { p.changes.put(p.real(where), value) }

// real translates a place in a pod template to this one, whose pod spec may have another path.
func (p *pod) real(where place) place {
	if where[0] == "spec" {
		return slices.Concat(p.t.spec, where[1:])
	}
	return where
}

// write applies the changes to the document, and adds the record that reverses them.
func (p *pod) write(edit *yamledit.Editor, m *memory) {
	inside := p.t.chain
	for _, n := range inside {
		unshared(n, place{"the object"})
	}
	status, undo := at("metadata", "annotations", AnnotationStatus), at("metadata", "annotations", AnnotationUndo)
	p.put(status, statusVersion+p.changes.sum(&m.spelled))
	p.put(undo, "")
	// First compute the record alone: the record includes itself.
	rec := &p.wrote.record
	if !slices.Equal(p.t.spec, inTemplate) {
		rec.At = p.t.spec.String()
	}
	m.undo.Reset(p.t.object.doc)
	p.apply(&applier{edit: &m.undo, rec: rec})
	text, _ := json.Marshal(rec) // only strings
	p.wrote.text = string(text)
	p.put(undo, p.wrote.text)
	p.apply(&applier{edit: edit, checked: true})
}

// depthOfChange is the length of nearly all places that inject changes.
const depthOfChange = 8

// apply applies the changes of the template before those of its parent, because both may end at the
// same offset.
func (p *pod) apply(a *applier) {
	var inner, outer branch
	for _, c := range p.changes.children {
		if c.part == "^" {
			outer.children = c.children
		} else {
			inner.children = append(inner.children, c)
		}
	}
	a.apply(p.t.node, &inner, make(place, 0, depthOfChange))
	if len(outer.children) > 0 {
		a.apply(p.t.up(1), &outer, append(make(place, 0, depthOfChange), "^"))
	}
}

// stands reports whether a template was injected before with the same result.
func (p *pod) stands(before *template) bool {
	status := p.get(at("metadata", "annotations", AnnotationStatus))
	return before.own(AnnotationStatus).Text() == status && !p.missing(before)
}

// get returns the value of a change.
func (p *pod) get(where place) any {
	b := &p.changes
	for _, part := range where {
		b = b.child(part)
	}
	return b.value
}

// missing reports whether a template lacks an injected value. The record may differ: it depends on
// the text, which programs rewrite.
func (p *pod) missing(t *template) bool {
	return slices.ContainsFunc(p.changes.children, func(b *branch) bool {
		if b.part != "^" {
			return b.missing(t.node)
		}
		var outer *yamledit.Node
		if len(t.chain) > 1 {
			outer = t.up(1)
		}
		return slices.ContainsFunc(b.children, func(c *branch) bool { return c.missing(outer) })
	})
}

// missing reports whether a value of the branch is absent below parent, which may be nil.
func (b *branch) missing(parent *yamledit.Node) bool {
	var n *yamledit.Node
	if parent != nil {
		if i := index(parent, b.part); i >= 0 {
			n = nth(parent, i)
		}
	}
	switch {
	case b.part == AnnotationUndo:
		return n == nil
	case b.leaf:
		return !alike(b.value, n)
	}
	return slices.ContainsFunc(b.children, func(c *branch) bool { return c.missing(n) })
}

// ownVariables are the variables that differ between stager's containers.
var ownVariables = []string{"STAGER_SOCKET", "STAGER_LISTEN"}

// variables returns the variables of stager's containers, or of a wrapped one.
func (p *pod) variables() []variable {
	if p.common == nil {
		p.common = p.findVariables()
	}
	return p.common
}

func (p *pod) findVariables() []variable {
	f := p.job
	all := append(make([]variable, 0, 12),
		variable{"STAGER_PLAN_YAML", literalSource(Dollars(p.req.text))},
		variable{"STAGER_NAMESPACE", source{field: "metadata.namespace"}},
		variable{"STAGER_POD", source{field: "metadata.name"}},
		variable{"STAGER_JOB", f.job},
	)
	if f.role != "" {
		all = append(all, variable{"STAGER_ROLE", literalSource(f.role)})
	}
	if f.attempt != (source{}) {
		all = append(all, variable{"STAGER_ATTEMPT", f.attempt})
	}
	count := f.count
	if p.req.count != "" {
		if n, err := strconv.Atoi(p.req.count); err != nil || n < 1 {
			refuse(p.t.own(AnnotationCount), "%q is not a number of pods; write a whole number above 0", p.req.count)
		}
		count = p.req.count
	}
	if p.req.plan.Spec.Shard.By == plan.ShardAuto && f.caution != "" && (p.req.count == "" || f.count != "") && len(p.req.plan.Spec.Inputs) > 0 {
		p.warn("%s", f.caution)
	}
	if count == "" {
		p.countless()
	}
	p.divisible(count)
	if f.index != (source{}) {
		all = append(all, f.helpers...)
		all = append(all, variable{"STAGER_INDEX", f.index})
	}
	if count != "" {
		all = append(all, variable{"STAGER_COUNT", literalSource(count)})
	}
	all = append(all, p.identity()...)
	for _, name := range sortedKeys(p.opts.Env) {
		if own := func(v variable) bool { return v.name == name }; slices.Contains(ownVariables, name) || slices.ContainsFunc(all, own) {
			refuse(nil, "the variable %s is set by inject itself; remove it from the variables of stager's containers", name)
		}
		all = append(all, variable{name, literalSource(Dollars(p.opts.Env[name]))})
	}
	return all
}

// Dollars escapes a text so that the kubelet does not expand $(NAME) in a variable.
func Dollars(text string) string {
	if strings.Contains(text, "$(") || strings.Contains(text, "$$") {
		return strings.ReplaceAll(text, "$", "$$")
	}
	return text
}

// entry returns the variable in Kubernetes' format.
func (v variable) entry() yamledit.Map {
	if v.field == "" {
		return yamledit.Map{{Key: "name", Value: v.name}, {Key: "value", Value: v.text}}
	}
	return yamledit.Map{{Key: "name", Value: v.name}, {Key: "valueFrom", Value: yamledit.Map{
		{Key: "fieldRef", Value: yamledit.Map{{Key: "fieldPath", Value: v.field}}},
	}}}
}

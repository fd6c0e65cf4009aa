package jobspec

import (
	"slices"
	"time"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
	"github.com/stager-dev/stager/stager/plan"
)

// restartDelay is how long Kubernetes takes to restart a sidecar: a back-off of up to five minutes,
// plus the start itself.
const restartDelay = 6 * time.Minute

// wraps reports whether the job's container waits until the sidecar has saved its outputs. It warns
// about outputs that may be lost when waiting is necessary but not possible.
func (p *pod) wraps() bool {
	outputs := p.req.plan.Spec.Outputs
	required := slices.ContainsFunc(outputs, func(out plan.Output) bool { return out.Required })
	switch {
	case p.req.finalize == FinalizeWrap:
		p.checkCommand()
		return len(outputs) > 0
	case p.req.finalize == FinalizeSidecar || !required:
		return false
	case len(p.targets) > 1:
		p.warn("outputs can be lost: %s names %d containers, and stager can keep only one running until its outputs are saved; if the sidecar is down when they end (out of memory, in back-off), the pod succeeds and unsaved outputs are deleted with its volumes",
			AnnotationContainers, len(p.targets))
		return false
	case len(p.targets[0].Get("command").All()) == 0:
		p.warn("outputs can be lost: container %s has no command, so stager cannot keep it running until its outputs are saved; if the sidecar is down when it ends (out of memory, in back-off), the pod succeeds and unsaved outputs are deleted with its volumes; write its command out",
			p.names[0])
		return false
	}
	return true
}

// checkCommand refuses commands that stager cannot start as their parent.
func (p *pod) checkCommand() {
	if len(p.targets) > 1 {
		refuse(nil, "%s: %s wraps one container, and %s names %d; name one", AnnotationFinalize, p.req.finalize, AnnotationContainers, len(p.targets))
	}
	if len(p.targets[0].Get("command").All()) == 0 {
		refuse(p.targets[0], "container %s has no command, and the command of its image is unknown here; write the command into the container, or use %s: %s",
			p.names[0], AnnotationFinalize, FinalizeSidecar)
	}
}

// wrap makes stager the parent of the target's command, in addition to the sidecar.
func (p *pod) wrap() {
	var longest time.Duration
	for _, out := range p.req.plan.Spec.Outputs {
		longest = max(longest, time.Duration(out.Deadline))
	}
	args := []any{"wrap", "--socket=" + socketPath, "--save-wait=" + (longest + restartDelay).String()}
	if p.spec("restartPolicy").Text() != "Never" {
		// After a failure Kubernetes restarts the container in this pod, and the sidecar continues.
		args = append(args, "--save-after=success")
	}
	if p.user.foreign {
		args = append(args, "--share-files")
	}
	p.becomeParent(args)
}

// runInside makes stager the parent of the target's command, without a sidecar.
func (p *pod) runInside() {
	p.checkCommand()
	if secrets := p.secrets(); len(secrets) > 0 {
		p.warn("container %s gets the Secrets of the stores, because %s: %s needs them there: %s", p.names[0], AnnotationFinalize, FinalizeRun, secrets)
	}
	target, in := p.targets[0], p.inTarget(0)
	p.becomeParent([]any{"run"})
	for _, v := range p.variables() {
		p.variable(0, v)
	}
	for _, m := range p.secretMounts() {
		p.mountIn(0, m.(yamledit.Map))
	}
	if has := target.Get("resources", "requests", "ephemeral-storage"); p.sizes.disk > 0 {
		p.put(in.in("resources", "requests", "ephemeral-storage"), (bytesOf(has) + p.sizes.disk).String())
	}
}

// becomeParent puts stager and its arguments before the target's command. An init container
// installs the binary, because the image is the user's.
func (p *pod) becomeParent(args []any) {
	if has := p.targets[0].Get("command"); has.All()[0].Is(binDir + "/stager") {
		refuse(has, "container %s is already wrapped by stager, and %s does not record how; restore its own command", p.names[0], AnnotationUndo)
	}
	words := append([]any{binDir + "/stager"}, args...)
	words = append(words, "--")
	for _, word := range p.targets[0].Get("command").All() {
		words = append(words, word.Text())
	}
	p.put(p.inTarget(0).in("command"), words)
	p.mountIn(0, append(mountAt(binVolume, binDir), yamledit.Entry{Key: "readOnly", Value: true}))
	p.initContainer(append(p.container(ContainerInstall),
		yamledit.Entry{Key: "args", Value: []any{"install", binDir}},
		yamledit.Entry{Key: "resources", Value: p.installSize().entry()},
		yamledit.Entry{Key: "securityContext", Value: p.user.context()},
		yamledit.Entry{Key: "volumeMounts", Value: []any{mountAt(binVolume, binDir)}},
	))
}

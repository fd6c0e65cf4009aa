package jobspec

import (
	"slices"
	"strconv"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// user is the user of stager's containers. It is the trainer's user if that is known, because only
// that user may be able to read the trainer's files.
type user struct {
	uid, gid     int64 // gid -1: the image's
	capabilities []any // added after all capabilities are dropped
	foreign      bool  // the job's user may differ; files are shared by the pod's fsGroup
	unknown      bool  // the job's user may differ, and there is no common group
}

// nobody is the user and group of stager's image. It applies if the target's user is unknown.
const nobody = 65532

// privilegesOf returns the privileges that an annotation requests, or "" without an annotation.
func privilegesOf(n *yamledit.Node) string {
	if n == nil {
		return ""
	}
	return choice(n, "", PrivilegesFiles)
}

// findUser returns the first target's user if the pod defines it. Otherwise stager runs as nobody
// and shares files by the pod's fsGroup, which every Pod Security level allows.
func (p *pod) findUser() user {
	own, pods := p.targets[0].Get("securityContext"), p.spec("securityContext")
	said := func(key string) *yamledit.Node { return orElse(own.Get(key), pods.Get(key)) }
	level := p.opts.PodSecurity
	if level != "" && !slices.Contains([]string{Privileged, Baseline, Restricted}, level) {
		refuse(nil, "%q is not a level of pod security; use %s, %s or %s", level, Privileged, Baseline, Restricted)
	}
	if p.req.privileges == PrivilegesFiles {
		return p.privileged(level)
	}
	u := user{gid: -1}
	if gid := said("runAsGroup"); !gid.IsNull() {
		u.gid = number64(gid.Text())
	}
	if uid := said("runAsUser"); !uid.IsNull() {
		u.uid = number64(uid.Text())
		return u
	}
	u.uid, u.foreign = nobody, true
	if u.gid < 0 {
		u.gid = nobody
	}
	if !p.shape.inside {
		p.share()
	}
	return u
}

// share adds a group to the pod with which stager and the job's user can read each other's files.
func (p *pod) share() {
	pods := p.spec("securityContext")
	group := pods.Get("fsGroup").Text()
	if group == "" {
		group = strconv.Itoa(nobody)
		p.put(at("spec", "securityContext", "fsGroup"), int64(nobody))
		if pods.Get("fsGroupChangePolicy").IsNull() {
			p.put(at("spec", "securityContext", "fsGroupChangePolicy"), "OnRootMismatch")
		}
		for _, v := range p.spec("volumes").All() {
			if claim := v.Get("persistentVolumeClaim"); claim != nil && claim.Get("readOnly").Text() != "true" {
				p.warn("the pod has no fsGroup and gets %s: Kubernetes may change the group of the files of volume %s to it; to prevent that, set runAsUser or fsGroup", group, v.Get("name").Text())
			}
		}
	}
	if len(p.req.plan.Spec.Outputs) > 0 && !p.shape.wrap { // a wrapped command makes its files readable to the group
		p.warn("the user of container %s is not known, so stager runs as user %d and reads outputs by group %s: a file that only its owner may read is not saved (exit code 75); write runAsUser, or %s: %s",
			p.names[0], nobody, group, AnnotationPrivileges, PrivilegesFiles)
	}
	for _, m := range p.mounts {
		if m.host() {
			p.warn("%s is a directory of the node, whose group Kubernetes does not change: stager, as user %d, can use it only where its mode allows others to; set runAsUser, or %s: %s",
				m.path, nobody, AnnotationPrivileges, PrivilegesFiles)
		}
	}
}

// privileged returns the user for [PrivilegesFiles]: root, with only the capabilities to read and
// link the files of other users. If fs.protected_hardlinks is set, as on nearly all systems, a link
// needs FOWNER or write permission.
func (p *pod) privileged(level string) user {
	u := user{gid: -1, unknown: true}
	switch level {
	case Restricted:
		refuse(p.t.own(AnnotationPrivileges), "%s: %s runs stager as root, and the namespace enforces the Pod Security level %s, which forbids it; remove the annotation and write runAsUser, or have the job write files that its group may read (umask 027), or use a namespace that enforces %s or %s",
			AnnotationPrivileges, PrivilegesFiles, Restricted, Baseline, Privileged)
	case Baseline:
		u.capabilities = []any{"DAC_OVERRIDE"} // the minimum that this level allows
	default:
		u.capabilities = []any{"DAC_READ_SEARCH", "FOWNER"}
	}
	return u
}

// context returns the security context of each injected container. It meets the Restricted level,
// unless the job's own user, or [PrivilegesFiles], is root.
func (u user) context() yamledit.Map {
	c := yamledit.Map{{Key: "runAsUser", Value: u.uid}}
	if u.gid >= 0 {
		c = append(c, yamledit.Entry{Key: "runAsGroup", Value: u.gid})
	}
	// runAsNonRoot is false for root. Otherwise the pod's own runAsNonRoot would prevent the start.
	c = append(c, yamledit.Entry{Key: "runAsNonRoot", Value: u.uid != 0})
	capabilities := yamledit.Map{{Key: "drop", Value: []any{"ALL"}}}
	if len(u.capabilities) > 0 {
		capabilities = append(capabilities, yamledit.Entry{Key: "add", Value: u.capabilities})
	}
	return append(c,
		yamledit.Entry{Key: "allowPrivilegeEscalation", Value: false},
		yamledit.Entry{Key: "readOnlyRootFilesystem", Value: true},
		yamledit.Entry{Key: "capabilities", Value: capabilities},
		yamledit.Entry{Key: "seccompProfile", Value: yamledit.Map{{Key: "type", Value: "RuntimeDefault"}}},
	)
}

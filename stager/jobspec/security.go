package jobspec

import (
	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// user is whom stager's containers run as. Files of a trainer may be for its user
// alone, so it is the same one where it is known.
type user struct {
	uid, gid     int64 // gid -1: as the image has it
	capabilities []any // kept of root's
	unknown      bool  // the job's may be another, of no common group
}

// nobody is the user where the target's is not known and root is not allowed: that
// of stager's image.
const nobody = 65532

// findUser looks for the first target's user.
func (p *pod) findUser() user {
	own, pods := p.targets[0].Get("securityContext"), p.spec("securityContext")
	said := func(key string) *yamledit.Node { return orElse(own.Get(key), pods.Get(key)) }
	u := user{gid: -1}
	if gid := said("runAsGroup"); !gid.IsNull() {
		u.gid = number64(gid.Text())
	}
	if uid := said("runAsUser"); !uid.IsNull() {
		u.uid = number64(uid.Text())
		return u
	}
	level := p.opts.PodSecurity
	if said("runAsNonRoot").Text() == "true" {
		level = Restricted
	}
	switch level {
	case Restricted:
		u.uid = nobody
		if u.gid < 0 {
			u.gid = nobody
		}
		group := pods.Get("fsGroup").Text()
		if group == "" {
			p.put(at("spec", "securityContext", "fsGroup"), int64(nobody))
			group = "65532, which is put in"
		}
		p.warn("the user of container %s is not known, so stager runs as %d and meets it by fsGroup %s: files for their user alone are not saved, and a checkpoint that its job removes before it is saved is lost, since links to others' files are refused; say runAsUser", p.names[0], nobody, group)
	// Others' files are read, and linked, which holds a checkpoint fast: where
	// fs.protected_hardlinks is set, as it is nearly everywhere, that takes FOWNER or the
	// right to write them.
	case Baseline:
		u.unknown = true
		u.capabilities = []any{"DAC_OVERRIDE"} // the least that is allowed there
	case Privileged, "":
		u.unknown = true
		u.capabilities = []any{"DAC_READ_SEARCH", "FOWNER"}
	default:
		refuse(nil, "%q is not a level of pod security; use %s, %s or %s", level, Privileged, Baseline, Restricted)
	}
	return u
}

// context is the security context of each container that is put in: nothing that
// the Restricted level forbids, but for root where it must be.
func (u user) context() yamledit.Map {
	c := yamledit.Map{{Key: "runAsUser", Value: u.uid}}
	if u.gid >= 0 {
		c = append(c, yamledit.Entry{Key: "runAsGroup", Value: u.gid})
	}
	if u.uid != 0 {
		c = append(c, yamledit.Entry{Key: "runAsNonRoot", Value: true})
	}
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

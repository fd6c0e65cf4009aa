package jobspec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// Part is one part that was added to a pod template, or changed in it.
type Part struct {
	Kind      string   // such as container, volume, mount, env, command, resources, annotation
	Name      string   // "": the kind identifies it
	Container string   // to which it belongs; "": the pod
	For       []string // inputs and outputs, such as "input train"; empty: stager itself
	Reason    string
	Value     string // new value, if it is a single one
}

// parts returns all changes, each with its reason.
func (p *pod) parts() (all []Part) {
	var walk func(b *branch, where place)
	walk = func(b *branch, where place) {
		if b.leaf {
			all = append(all, p.explain(where, b.value)...)
			return
		}
		for _, c := range b.children {
			walk(c, where.in(c.part))
		}
	}
	for _, c := range p.changes.children {
		walk(c, place{c.part})
	}
	return all
}

// explain returns the parts of one change.
func (p *pod) explain(where place, value any) []Part {
	one := Part{Name: where[len(where)-1]}
	switch value.(type) {
	case string, int64, bool:
		one.Value = fmt.Sprint(value)
	}
	switch {
	case where[0] == "metadata":
		one.Kind, one.Value = "annotation", ""
		one.Reason = "the data for stager uninject"
		if one.Name == AnnotationStatus {
			one.Reason = "a digest of the injected parts, by which inject detects changes"
		}
	case where[0] == "^":
		one.Kind, one.Name = "policy", where[1]
		one.Reason = "a pod that lost its node is retried, and an error that a retry cannot fix fails the Job"
		if one.Name == "podReplacementPolicy" {
			one.Reason = "a replacement waits for the pod that is still saving its outputs"
		}
	default:
		return p.explainSpec(where, value, one)
	}
	return []Part{one}
}

// explainSpec returns the parts of a change in the pod spec.
func (p *pod) explainSpec(where place, value any, one Part) []Part {
	switch where[1] {
	case "initContainers":
		m, _ := value.(yamledit.Map)
		return p.explainContainer(m)
	case "volumes":
		return []Part{p.explainVolume(strings.TrimPrefix(where[2], "name="))}
	case "containers":
		return []Part{p.explainTarget(where, one)}
	case "terminationGracePeriodSeconds":
		one.Kind, one.Name = "grace", ""
		one.For = p.outputs()
		one.Reason = "the longest deadline of an output, and 30 s"
	case "nodeSelector":
		one.Kind, one.Reason = "node", "the plan's nodeSelector"
	case "securityContext":
		one.Kind, one.Reason = "security", "stager and the job share files through this group"
		if one.Name == "fsGroupChangePolicy" {
			one.Reason = "the group of a large volume is set once, not at each start"
		}
	case "resources":
		one.Kind, one.Name = "resources", strings.Join(where[2:], ".")
		one.Reason = "the pod-level budget, increased for stager's containers"
	default:
		one.Kind, one.Name, one.Reason = "field", where.called(), "needed by stager's containers"
	}
	return []Part{one}
}

// explainVolume returns the part of a volume.
func (p *pod) explainVolume(name string) Part {
	v := Part{Kind: "volume", Name: name, For: p.on(name, "")}
	switch name {
	case runVolume:
		v.Reason = "the socket through which the job's container requests shards and commits checkpoints"
		return v
	case tmpVolume:
		v.Reason = "a writable directory: stager's root file system is read-only"
		return v
	case binVolume:
		v.For, v.Reason = p.outputs(), "stager's binary, which keeps the job's container running until its outputs are saved"
		return v
	}
	for _, secret := range p.secrets() {
		if p.volumeName(ofSecret, secret) == name {
			v.For, v.Reason = p.opens(secret), "the credentials of their stores: Secret "+secret+", mounted only in stager's containers"
			return v
		}
	}
	for _, m := range p.mounts {
		if m.volume != name {
			continue
		}
		v.Reason = "their files"
		if m.bytes > 0 {
			v.Value, v.Reason = m.bytes.String(), "their files, "+m.bytes.String()+" at most"
		}
		break
	}
	return v
}

// outputs returns all outputs.
func (p *pod) outputs() []string {
	return slices.DeleteFunc(p.everything(), func(thing string) bool { return !strings.HasPrefix(thing, ofOutput+" ") })
}

// explainTarget returns the part of a change in one of the job's containers.
func (p *pod) explainTarget(where place, one Part) Part {
	one.Container = strings.TrimPrefix(where[2], "name=")
	switch where[3] {
	case "volumeMounts":
		one.Kind, one.Value = "mount", ""
		one.Name = strings.TrimPrefix(where[4], "mountPath=")
		p.explainMount(&one)
	case "env":
		one.Kind, one.Value = "env", ""
		one.Name = strings.TrimPrefix(where[4], "name=")
		p.explainVariable(&one)
	case "command":
		one.Kind, one.Name, one.Value = "command", "", ""
		one.For, one.Reason = p.outputs(), "stager is the parent of the command and exits when they are saved"
		if p.shape.inside {
			one.For, one.Reason = p.everything(), "stager is the parent of the command, fetches its inputs and saves its outputs"
		}
	default:
		one.Kind, one.Name = "resources", strings.Join(where[4:], ".")
		one.Reason = "the volumes of the plan are charged to this container"
	}
	return one
}

func (p *pod) explainMount(one *Part) {
	switch one.Name {
	case runDir:
		one.For, one.Reason = nil, "stager's socket"
	case binDir:
		one.For, one.Reason = p.outputs(), "stager's binary"
	case tmpDir:
		one.Reason = "a writable directory"
	default:
		one.For, one.Reason = p.on("", one.Name), "their files"
		if len(one.For) == 0 {
			one.Reason = "a store that is a volume of the pod"
		}
		if strings.HasPrefix(one.Name, "/run/stager/secrets/") {
			one.For, one.Reason = p.opens(one.Name[strings.LastIndexByte(one.Name, '/')+1:]), "the credentials of their stores"
		}
	}
}

// why describes the variables that stager reads.
var why = map[string]string{
	"STAGER_PLAN_YAML": "the plan",
	"STAGER_NAMESPACE": "{namespace} in URLs and paths",
	"STAGER_POD":       "{pod} in URLs and paths",
	"STAGER_JOB":       "{job} in URLs and paths",
	"STAGER_ROLE":      "{role} in URLs and paths",
	"STAGER_ATTEMPT":   "{attempt} in URLs and paths: how often the job was started before",
	"STAGER_INDEX":     "the index of this pod: its part of the inputs, and {index}",
	"STAGER_COUNT":     "the number of pods: how the inputs are divided, and {count}",
	"STAGER_SOCKET":    "where the API listens",
	"STAGER_LISTEN":    "where metrics and probes listen",
	"STAGER_ANY_USER":  "the job's container may run as another user",
	jobUIDVariable:     "the job that the parts of a checkpoint belong to",
	podUIDVariable:     "the pod that a part of a checkpoint comes from",
	heapVariable:       "memory limit without the RAM disks that are charged to the container",
}

func (p *pod) explainVariable(one *Part) {
	if thing := p.thing(one.Name); thing != "" {
		one.For, one.Reason = []string{thing}, "where its files are"
		return
	}
	one.Reason = why[one.Name]
	_, given := p.opts.Env[one.Name]
	switch {
	case given:
		one.Reason = "set by --container-env"
	case one.Reason == "" && slices.ContainsFunc(p.job.helpers, func(v variable) bool { return v.name == one.Name }):
		one.Reason = "a part of STAGER_INDEX"
	}
}

// explainContainer returns the part of an added container, and the parts within it.
func (p *pod) explainContainer(m yamledit.Map) (all []Part) {
	name, _ := m[0].Value.(string)
	c := Part{Kind: "container", Name: name}
	switch name {
	case ContainerSidecar:
		c.For, c.Reason = p.served(name), "a sidecar that serves windows and saves outputs while the job runs"
	case ContainerPrefetch:
		c.For, c.Reason = p.served(name), "an init container that fetches what must be complete before the job starts"
		if len(c.For) == 0 {
			c.For, c.Reason = p.inputs(), "an init container that checks whether their sources exist"
		}
	case ContainerInstall:
		c.For, c.Reason = p.outputs(), "an init container that copies stager's binary for the job's container"
		if p.shape.inside {
			c.For = p.everything()
		}
	}
	all = append(all, c)
	for _, e := range m {
		items, _ := e.Value.([]any)
		for _, item := range items {
			entry, _ := item.(yamledit.Map)
			if len(entry) == 0 {
				continue
			}
			one := Part{Container: name}
			switch e.Key {
			case "env":
				one.Kind, one.Name = "env", fmt.Sprint(entry[0].Value)
				p.explainVariable(&one)
			case "volumeMounts":
				one.Kind, one.Name = "mount", fmt.Sprint(entry[1].Value)
				p.explainMount(&one)
			default:
				continue
			}
			all = append(all, one)
		}
	}
	return all
}

// inputs returns all inputs.
func (p *pod) inputs() []string {
	return slices.DeleteFunc(p.everything(), func(thing string) bool { return !strings.HasPrefix(thing, ofInput+" ") })
}

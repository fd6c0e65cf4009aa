package jobspec

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
	"github.com/stager-dev/stager/stager/plan"
)

// Names and mount paths of stager's own volumes.
const (
	volumePrefix = "stager-"
	runVolume    = volumePrefix + "run" // for the socket
	runDir       = "/run/stager"
	tmpVolume    = volumePrefix + "tmp"
	tmpDir       = "/tmp"
	binVolume    = volumePrefix + "bin" // for the binary, with wrap
	binDir       = "/run/stager-bin"
)

// mount is a data volume in stager's containers and the targets.
type mount struct {
	volume  string // name in the pod
	path    string
	subPath string
	source  yamledit.Map   // source of an added volume; nil: the pod has the volume already
	user    *yamledit.Node // the target's mount from which it is taken; nil: it is added to the targets
	bytes   plan.Bytes     // size limit; 0: none
	memory  bool
	disk    bool // on the node's disk
	written bool // by a container that ends before the job starts
}

// host reports whether the volume is a directory of the node.
func (m mount) host() bool { return len(m.source) > 0 && m.source[0].Key == "hostPath" }

// dir is an input or output and the volume options in it.
type dir struct {
	kind, name, path, volume string
	window                   plan.Bytes // its size; 0: none
	prefetch                 bool
}

func (p *pod) dirs() (all []dir) {
	for _, in := range p.req.plan.Spec.Inputs {
		f := dir{kind: ofInput, name: in.Name, path: static(in.Path), volume: in.Volume, prefetch: in.Mode == plan.ModePrefetch}
		if in.Window != nil {
			f.window = in.Window.Size
		}
		all = append(all, f)
	}
	for _, out := range p.req.plan.Spec.Outputs {
		all = append(all, dir{kind: ofOutput, name: out.Name, path: static(out.Path), volume: out.Volume})
	}
	return all
}

// static returns the part of a path before the first placeholder, which can be mounted.
func static(directory string) string {
	if i := strings.IndexByte(directory, '{'); i >= 0 {
		directory = directory[:strings.LastIndexByte(directory[:i], '/')]
	}
	return path.Clean("/" + directory)
}

// headroom returns the volume size for a window. Files are rounded up to blocks, and the journal
// needs space. The kubelet evicts a pod that exceeds the limit.
func headroom(window plan.Bytes) plan.Bytes {
	const mebi = 1 << 20
	return (window + window/20 + 64*mebi + mebi - 1) / mebi * mebi
}

// placeVolumes selects the volume of each directory in the plan: a volume of the plan, a volume
// that the user has mounted there, or a new one.
func (p *pod) placeVolumes() {
	byVolume := make(map[string][]dir)
	for _, f := range p.dirs() {
		if f.path == "/" {
			refuse(nil, "%s: its path begins with a placeholder; begin it with a directory that can be mounted", f.name)
		}
		checkPath(f)
		if f.volume != "" {
			byVolume[f.volume] = append(byVolume[f.volume], f)
			continue
		}
		if m := p.covering(f.path); m != nil {
			p.takeMount(m)
			continue
		}
		own := plan.Volume{Name: f.name, Medium: "disk"}
		if f.window > 0 {
			own.Size = headroom(f.window)
		}
		p.mount(f.kind, own, []dir{f})
	}
	for _, v := range p.req.plan.Spec.Volumes {
		if len(byVolume[v.Name]) > 0 {
			p.mount(ofVolume, v, byVolume[v.Name])
		}
	}
	for i, m := range p.mounts {
		for _, other := range p.mounts[:i] {
			if m.path == other.path && m.volume != other.volume {
				refuse(nil, "two volumes, %s and %s, belong at %s; give one of them another path", other.volume, m.volume, m.path)
			}
		}
	}
}

// covering returns the mount of the first target that contains a path, or nil.
func (p *pod) covering(directory string) (best *yamledit.Node) {
	for _, m := range p.targets[0].Get("volumeMounts").All() {
		at := path.Clean(m.Get("mountPath").Text())
		if within(directory, at) && (best == nil || len(at) > len(path.Clean(best.Get("mountPath").Text()))) {
			best = m
		}
	}
	return best
}

func within(inner, outer string) bool {
	return outer == "/" || inner == outer || strings.HasPrefix(inner, outer+"/")
}

// takeMount adds a target's mount to stager's containers.
func (p *pod) takeMount(m *yamledit.Node) {
	at := path.Clean(m.Get("mountPath").Text())
	for _, have := range p.mounts {
		if have.user != nil && have.path == at {
			return
		}
	}
	name := m.Get("name").Text()
	taken := mount{volume: name, path: at, subPath: m.Get("subPath").Text(), user: m}
	if v := p.spec("volumes").Item("name", name); v != nil {
		if dir := v.Get("emptyDir"); dir != nil {
			taken.memory = dir.Get("medium").Text() == "Memory"
			taken.bytes, _ = plan.ParseBytes(dir.Get("sizeLimit").Text()) // the API server refuses invalid ones
			taken.written = p.prefetchesInto(at)
			if taken.memory && taken.bytes == 0 {
				refuse(v, "the RAM disk %s has no sizeLimit, so it may use all memory of the node; set one", name)
			}
		}
	}
	p.mounts = append(p.mounts, taken)
}

// prefetchesInto reports whether an init container writes below a path.
func (p *pod) prefetchesInto(at string) bool {
	return p.shape.prefetch && slices.ContainsFunc(p.dirs(), func(f dir) bool { return f.prefetch && within(f.path, at) })
}

// mount mounts a volume of the plan, or of one input or output, at its directories: at the only
// one, or at their deepest common ancestor. If that is the root or a directory of stager's, it
// mounts the volume at each directory separately.
func (p *pod) mount(kind string, v plan.Volume, directories []dir) {
	m := mount{bytes: v.Size}
	var windows plan.Bytes
	for _, f := range directories {
		windows += f.window
		m.written = m.written || f.prefetch && p.shape.prefetch
	}
	if v.Size > 0 && windows > 0 {
		m.bytes = max(v.Size, headroom(windows))
	}
	medium, what, _ := strings.Cut(v.Medium, ":")
	if medium != "existing" {
		m.volume = p.volumeName(kind, v.Name)
	}
	switch medium {
	case "disk", "memory":
		dir := yamledit.Map{}
		if m.memory = medium == "memory"; m.memory {
			dir = append(dir, yamledit.Entry{Key: "medium", Value: "Memory"})
		}
		m.disk = !m.memory
		if m.bytes > 0 {
			dir = append(dir, yamledit.Entry{Key: "sizeLimit", Value: m.bytes.String()})
		}
		m.source = yamledit.Map{{Key: "emptyDir", Value: dir}}
	case "claim":
		m.source = yamledit.Map{{Key: "persistentVolumeClaim", Value: yamledit.Map{{Key: "claimName", Value: what}}}}
	case "host":
		m.source = yamledit.Map{{Key: "hostPath", Value: yamledit.Map{{Key: "path", Value: what}, {Key: "type", Value: "DirectoryOrCreate"}}}}
	case "existing":
		m.volume = what
		if p.spec("volumes").Item("name", what) == nil && p.claimTemplate(what) == nil {
			refuse(p.spec(), "the plan uses the pod's volume %q, and the pod has no volume of that name; add it, or change the plan's medium", what)
		}
	}
	if m.source != nil && p.spec("volumes").Item("name", m.volume) != nil {
		refuse(p.spec("volumes").Item("name", m.volume), "the pod has a volume %s already; rename the plan's volume %s", m.volume, v.Name)
	}
	if m.path = directories[0].path; len(directories) > 1 {
		for _, f := range directories[1:] {
			for !within(f.path, m.path) {
				m.path = path.Dir(m.path)
			}
		}
	}
	if m.path != "/" && m.path != tmpDir {
		p.addMount(m)
		return
	}
	used := make(map[string]bool)
	for _, f := range directories {
		m.path, m.subPath = f.path, f.name
		for used[m.subPath] { // an input and an output with the same name
			m.subPath = hashed(m.subPath, f.kind+"/"+f.name)
		}
		used[m.subPath] = true
		p.addMount(m)
		m.bytes = 0 // counted once
	}
}

// claimTemplate returns a StatefulSet's claim template, or nil.
func (p *pod) claimTemplate(name string) *yamledit.Node {
	for _, c := range p.t.object.root.Get("spec", "volumeClaimTemplates").All() {
		if c.Get("metadata", "name").Text() == name {
			return c
		}
	}
	return nil
}

// addMount refuses a mount that would hide one of the targets' mounts.
func (p *pod) addMount(m mount) {
	for i, target := range p.targets {
		for _, have := range target.Get("volumeMounts").All() {
			at := path.Clean(have.Get("mountPath").Text())
			if at == m.path && have.Get("name").Text() == m.volume && i == 0 {
				m.user = have
				continue
			}
			if within(at, m.path) {
				refuse(have, "the plan's volume %s at %s would hide %s, which container %s has at %s; remove the input's volume to use that one, or change a path",
					m.volume, m.path, have.Get("name").Text(), p.names[i], at)
			}
		}
	}
	p.mounts = append(p.mounts, m)
}

// entry returns the mount in Kubernetes' format.
func (m mount) entry() yamledit.Map {
	e := yamledit.Map{{Key: "name", Value: m.volume}, {Key: "mountPath", Value: m.path}}
	if m.user == nil {
		if m.subPath != "" {
			e = append(e, yamledit.Entry{Key: "subPath", Value: m.subPath})
		}
		return e
	}
	for _, key := range []string{"subPath", "subPathExpr", "mountPropagation"} {
		if v := m.user.Get(key); v != nil {
			e = append(e, yamledit.Entry{Key: key, Value: v.Text()})
		}
	}
	return e
}

// secretKeys returns the Secrets that the plan's stores need, with their keys.
func (p *pod) secretKeys() map[string][]string {
	names := make(map[string][]string)
	for _, in := range p.req.plan.Spec.Inputs {
		for _, from := range in.From() {
			names[from.Credentials.Secret] = from.Credentials.Keys
		}
	}
	for _, out := range p.req.plan.Spec.Outputs {
		names[out.Credentials.Secret] = out.Credentials.Keys
	}
	delete(names, "")
	return names
}

// secrets returns the names of the Secrets that the plan's stores need.
func (p *pod) secrets() []string { return sortedKeys(p.secretKeys()) }

// secretVolume returns the source of the volume of a Secret, whose entries [plan.ParseSecretKeys] accepts.
func secretVolume(name string, entries []string) yamledit.Entry {
	source := yamledit.Map{{Key: "secretName", Value: name}, {Key: "defaultMode", Value: int64(0o444)}}
	var items []any
	keys, _ := plan.ParseSecretKeys(entries) // as the contract says
	for _, k := range keys {
		items = append(items, yamledit.Map{{Key: "key", Value: k.Key}, {Key: "path", Value: k.Name}})
	}
	if items != nil {
		source = append(source, yamledit.Entry{Key: "items", Value: items})
	}
	return yamledit.Entry{Key: "secret", Value: source}
}

// addVolumes adds the volumes of all mounts.
func (p *pod) addVolumes() {
	add := func(name string, source yamledit.Map) {
		p.put(at("spec", "volumes", "name="+name), append(yamledit.Map{{Key: "name", Value: name}}, source...))
	}
	seen := make(map[string]bool)
	for _, m := range p.mounts {
		if m.source != nil && !seen[m.volume] {
			add(m.volume, m.source)
			seen[m.volume] = true
		}
	}
	keys := p.secretKeys()
	for _, name := range p.secrets() {
		add(p.volumeName(ofSecret, name), yamledit.Map{secretVolume(name, keys[name])})
	}
	scratch := yamledit.Map{{Key: "emptyDir", Value: yamledit.Map{}}}
	if p.shape.inside || p.shape.wrap {
		add(binVolume, scratch)
	}
	if p.shape.sidecar || p.shape.inside {
		add(runVolume, scratch)
	}
	if !p.shape.inside {
		add(tmpVolume, scratch)
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

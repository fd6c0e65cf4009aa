package jobspec

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
	"github.com/stager-dev/stager/stager/plan"
)

// meshes are the sidecars of service meshes. No store is reachable before they run.
var meshes = []string{
	"istio-init", "istio-validation", "istio-proxy", "linkerd-init", "linkerd-network-validator", "linkerd-proxy", "vault-agent-init", "vault-agent",
}

// socketPath is the path of the API socket in the pod.
const socketPath = runDir + "/stager.sock"

// containers adds the sidecar and the init container.
func (p *pod) containers() {
	s := sharedParts{
		mounts: slices.Concat(p.dataMounts(), p.stores()), secrets: p.secretMounts(),
		env: entriesOf(p.variables()), context: p.user.context(),
	}
	if p.shape.sidecar {
		p.initContainer(p.sidecar(&s))
	}
	if p.shape.wrap {
		p.wrap()
	}
	if p.shape.prefetch {
		p.initContainer(p.prefetch(&s))
	}
}

// sharedParts are the values that the sidecar and the init container have in common.
type sharedParts struct {
	mounts, secrets []any // of data and stores, and of Secrets
	env             []any
	context         yamledit.Map
}

// initContainer inserts a container before the user's init containers, but after those that set up
// the network.
func (p *pod) initContainer(c yamledit.Map) {
	list := &p.changes
	for _, part := range p.real(at("spec", "initContainers")) {
		list = list.child(part)
	}
	behind := -1
	for i, have := range p.spec("initContainers").All() {
		if slices.Contains(meshes, have.Get("name").Text()) {
			behind = i
		}
	}
	list.behind = &behind
	name, _ := c[0].Value.(string)
	list.put(at("name="+name), c)
}

// sidecar returns the container that serves windows and saves outputs.
func (p *pod) sidecar(shared *sharedParts) yamledit.Map {
	args := []any{"run"}
	if p.shape.split {
		args = append(args, "--prefetch=skip")
	}
	env := []variable{{"STAGER_SOCKET", literalSource(socketPath)}}
	env = append(env, p.heapLimit(p.sizes.sidecar.memoryLimit, p.sizes.sidecarRAM)...)
	if p.shape.wrap && p.user.unknown {
		env = append(env, variable{"STAGER_ANY_USER", literalSource("true")})
	}
	c := p.container(ContainerSidecar)
	c = append(c,
		yamledit.Entry{Key: "restartPolicy", Value: "Always"},
		yamledit.Entry{Key: "args", Value: args},
	)
	if p.opts.Listen != "" {
		env = append(env, variable{"STAGER_LISTEN", literalSource(p.opts.Listen)})
		port := p.opts.Listen[strings.LastIndexByte(p.opts.Listen, ':')+1:]
		if !regexp.MustCompile(`^[1-9][0-9]{0,4}$`).MatchString(port) {
			refuse(nil, "%q is not an address with a port, as in :9090", p.opts.Listen)
		}
		p.portIsFree(port)
		c = append(c, yamledit.Entry{Key: "ports", Value: []any{yamledit.Map{
			{Key: "name", Value: "stager"}, {Key: "containerPort", Value: number64(port)},
		}}})
	}
	c = append(c, yamledit.Entry{Key: "env", Value: slices.Concat(shared.env, entriesOf(env))})
	if p.req.gate == GateStartup {
		c = append(c, yamledit.Entry{Key: "startupProbe", Value: yamledit.Map{
			{Key: "exec", Value: command("/stager", "status", "--ready")},
			{Key: "periodSeconds", Value: int64(2)},
			{Key: "timeoutSeconds", Value: int64(5)},
			{Key: "failureThreshold", Value: int64(43200)}, // one day, because staging may take long
		}})
	}
	c = append(c,
		yamledit.Entry{Key: "lifecycle", Value: yamledit.Map{{Key: "preStop", Value: yamledit.Map{{Key: "exec", Value: command("/stager", "drain")}}}}},
		yamledit.Entry{Key: "resources", Value: p.sizes.sidecar.entry()},
		yamledit.Entry{Key: "securityContext", Value: shared.context},
		yamledit.Entry{Key: "volumeMounts", Value: onePerPath(slices.Concat(shared.mounts, []any{mountAt(runVolume, runDir), mountAt(tmpVolume, tmpDir)}, shared.secrets))},
	)
	return c
}

// portIsFree refuses a port that another container uses, because all containers of a pod share one
// address.
func (p *pod) portIsFree(port string) {
	for _, list := range []string{"containers", "initContainers"} {
		for _, c := range p.spec(list).All() {
			for _, has := range c.Get("ports").All() {
				if n := has.Get("containerPort"); n.Text() == port {
					refuse(n, "container %s has the port %s, on which stager would listen (--pod-listen); containers of a pod share one address, so choose another port", c.Get("name").Text(), port)
				}
			}
		}
	}
}

// prefetch returns the init container that fetches inputs completely before the job starts. It has
// its own socket, because the sidecar runs concurrently.
func (p *pod) prefetch(shared *sharedParts) yamledit.Map {
	env := []variable{{"STAGER_SOCKET", literalSource("/tmp/stager.sock")}}
	env = append(env, p.heapLimit(p.sizes.prefetch.memoryLimit, p.sizes.prefetchRAM)...)
	return append(p.container(ContainerPrefetch),
		yamledit.Entry{Key: "args", Value: []any{"run", "--prefetch=only"}},
		yamledit.Entry{Key: "env", Value: slices.Concat(shared.env, entriesOf(env))},
		yamledit.Entry{Key: "resources", Value: p.sizes.prefetch.entry()},
		yamledit.Entry{Key: "securityContext", Value: shared.context},
		yamledit.Entry{Key: "volumeMounts", Value: onePerPath(slices.Concat(shared.mounts, []any{mountAt(tmpVolume, tmpDir)}, shared.secrets))},
	)
}

// container returns the fields that all of stager's containers have in common.
func (p *pod) container(name string) yamledit.Map {
	image := cmp.Or(p.req.image, p.opts.Image)
	if image == "" {
		image = DefaultImage
		if p.opts.NoImage != nil {
			p.opts.NoImage()
		}
	}
	c := append(make(yamledit.Map, 0, 12), yamledit.Entry{Key: "name", Value: name}, yamledit.Entry{Key: "image", Value: image})
	if p.opts.ImagePullPolicy != "" {
		c = append(c, yamledit.Entry{Key: "imagePullPolicy", Value: p.opts.ImagePullPolicy})
	}
	return append(c, yamledit.Entry{Key: "terminationMessagePolicy", Value: "FallbackToLogsOnError"})
}

// equip adds mounts to a target, and variables with the locations of its data.
func (p *pod) equip(i int) {
	for _, m := range p.mounts {
		if m.user == nil || i > 0 && m.source != nil {
			p.mountIn(i, m.entry())
		}
	}
	if p.shape.sidecar || p.shape.inside {
		p.mountIn(i, mountAt(runVolume, runDir))
		p.variable(i, variable{"STAGER_SOCKET", literalSource(socketPath)})
	}
	tell := func(kind, name, directory string) {
		if !strings.Contains(directory, "{") {
			p.variable(i, variable{plan.Variable(kind, name), literalSource(directory)})
		}
	}
	for _, in := range p.req.plan.Spec.Inputs {
		tell("INPUT", in.Name, in.Path)
	}
	for _, out := range p.req.plan.Spec.Outputs {
		tell("OUTPUT", out.Name, out.Path)
	}
}

// inTarget returns the place of a target.
func (p *pod) inTarget(i int) place { return at("spec", "containers", "name="+p.names[i]) }

// variable sets a variable in a target unless the target defines it.
func (p *pod) variable(i int, v variable) {
	if p.targets[i].Get("env").Item("name", v.name) == nil {
		p.put(p.inTarget(i).in("env", "name="+v.name), v.entry())
	}
}

// mountIn adds a mount to a target unless the target has an identical one.
func (p *pod) mountIn(i int, m yamledit.Map) {
	where, _ := m[1].Value.(string)
	for _, have := range p.targets[i].Get("volumeMounts").All() {
		if path.Clean(have.Get("mountPath").Text()) != where {
			continue
		}
		if have.Get("name").Text() != m[0].Value {
			refuse(have, "container %s has a mount at %s, where stager needs one; move it", p.names[i], where)
		}
		return
	}
	p.put(p.inTarget(i).in("volumeMounts", "mountPath="+where), m)
}

// dataMounts returns the data mounts of stager's containers.
func (p *pod) dataMounts() (all []any) {
	for _, m := range p.mounts {
		all = append(all, m.entry())
	}
	return all
}

func (p *pod) secretMounts() (all []any) {
	for _, name := range p.secrets() {
		m := mountAt(p.volumeName(ofSecret, name), plan.SecretsDir+"/"+name)
		all = append(all, append(m, yamledit.Entry{Key: "readOnly", Value: true}))
	}
	return all
}

func mountAt(volume, where string) yamledit.Map {
	return yamledit.Map{{Key: "name", Value: volume}, {Key: "mountPath", Value: where}}
}

func command(words ...any) yamledit.Map { return yamledit.Map{{Key: "command", Value: words}} }

func entriesOf(variables []variable) []any {
	all := make([]any, len(variables))
	for i, v := range variables {
		all[i] = v.entry()
	}
	return all
}

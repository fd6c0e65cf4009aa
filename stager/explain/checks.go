package explain

import (
	"fmt"
	"slices"

	"github.com/stager-dev/stager/stager/jobspec"
)

// budgets sums the requests and limits of a pod's containers, as the scheduler and the kubelet do:
// those that run together, or the largest of those that run before them.
func (e *explainer) budgets(p *work) {
	sum := func(of func(jobspec.Container) int64) int64 {
		var together, before int64
		for _, c := range p.d.Containers {
			if !c.Init {
				together += of(c)
			}
		}
		var sidecars int64
		for _, c := range p.d.Containers {
			if c.Sidecar {
				sidecars += of(c)
			}
			if c.Init {
				before = max(before, sidecars+of(c))
			}
		}
		return max(together, before)
	}
	p.Requests = Budget{
		sum(func(c jobspec.Container) int64 { return int64(c.Requests.Memory) }),
		sum(func(c jobspec.Container) int64 { return int64(c.Requests.Disk) }),
	}
	p.Limits = Budget{ // one container without a memory limit may use all memory; the kubelet sums the disk limits
		sum(func(c jobspec.Container) int64 { return int64(c.Limits.Memory) }),
		sum(func(c jobspec.Container) int64 { return int64(c.Limits.Disk) }),
	}
	if slices.ContainsFunc(p.d.Containers, func(c jobspec.Container) bool { return !c.Init && c.Limits.Memory == 0 }) {
		p.Limits.Memory = 0
	}
}

// on returns the bytes that are stored on volumes of a medium.
func (p *work) on(medium string) (needs int64) {
	for _, v := range p.Volumes {
		if v.Medium == medium {
			needs += v.Needs
		}
	}
	return needs
}

// target returns the container to which the job's data are charged, and its line.
func (p *work) target() (name string, line int) {
	name = p.d.Targets[0]
	i := slices.IndexFunc(p.d.Containers, func(c jobspec.Container) bool { return c.Name == name })
	if i >= 0 {
		line = p.d.Containers[i].Line
	}
	return name, line
}

// disk checks that the node's disk has room for the data on it.
func (e *explainer) disk(p *work) {
	needs := p.on("disk")
	if needs == 0 {
		return
	}
	name, line := p.target()
	if has := p.Limits.Disk; has > 0 && needs > has {
		takes, limit := apart(needs, has)
		e.find(Finding{
			Kind: NoSpace, Name: "ephemeral-storage limit", Object: p.Object, Has: has, Needs: needs, Line: line,
			Text: fmt.Sprintf("the volumes on the node's disk take %s, and the containers' limits for ephemeral-storage are %s together: the kubelet would evict the pod", takes, limit),
			Add:  fmt.Sprintf("container %s: resources: {limits: {ephemeral-storage: %s}}", name, quantity(p.share(name, needs, has, func(r jobspec.Container) int64 { return int64(r.Limits.Disk) }))),
		})
	}
	if has := p.Requests.Disk; needs > has {
		takes, asked := apart(needs, has)
		e.find(Finding{
			Kind: NoSpace, Name: "ephemeral-storage request", Object: p.Object, Has: has, Needs: needs,
			Text: fmt.Sprintf("the volumes on the node's disk take %s, and the pod requests %s of ephemeral-storage: it may be put on a node without that room", takes, asked),
			Add:  e.requestMore(p, needs, has), Line: p.requestLine(line),
		})
	}
	if each := max(needs, p.Requests.Disk); e.NodeDisk > 0 && each*int64(e.PodsPerNode) > e.NodeDisk {
		takes, has := apart(each*int64(e.PodsPerNode), e.NodeDisk)
		e.find(Finding{
			Kind: NoSpace, Name: "node disk", Object: p.Object, Has: e.NodeDisk, Needs: each * int64(e.PodsPerNode),
			Text: fmt.Sprintf("%d of the pods take %s of a node's disk, and it has %s", e.PodsPerNode, takes, has),
			Add:  "a window (mode=window&size=…), fewer pods on a node, or larger nodes",
		})
	}
}

// share returns the request or limit that a container needs so that the sum reaches needs bytes.
func (p *work) share(name string, needs, has int64, of func(jobspec.Container) int64) int64 {
	for _, c := range p.d.Containers {
		if c.Name == name {
			return of(c) + needs - has
		}
	}
	return needs - has
}

// unsized returns an injected volume on the node's disk without a size. If it had one, inject would
// request the disk space.
func (p *work) unsized() *Volume {
	for i, v := range p.Volumes {
		if v.Medium == "disk" && v.Own && v.Limit == 0 && v.Needs > 0 {
			return &p.Volumes[i]
		}
	}
	return nil
}

// requestMore returns what to write so that the pod requests the disk space.
func (e *explainer) requestMore(p *work, needs, has int64) string {
	if v := p.unsized(); v != nil {
		for _, f := range p.d.Dirs {
			if f.Volume == v.Name {
				return e.larger(p, f.Kind, f.Name, v.Needs)
			}
		}
	}
	name, _ := p.target()
	return fmt.Sprintf("container %s: resources: {requests: {ephemeral-storage: %s}}", name,
		quantity(p.share(name, needs, has, func(c jobspec.Container) int64 { return int64(c.Requests.Disk) })))
}

// requestLine returns the line that requestMore changes.
func (p *work) requestLine(target int) int {
	if v := p.unsized(); v != nil {
		for _, f := range p.d.Dirs {
			if f.Volume == v.Name {
				return f.Line
			}
		}
	}
	return target
}

// memory checks that the pod requests memory for its RAM disks, and that a node has enough memory
// for its pods.
func (e *explainer) memory(p *work) {
	needs := p.on("memory")
	if needs > 0 && needs > p.Requests.Memory {
		name, line := p.target()
		takes, asked := apart(needs, p.Requests.Memory)
		e.find(Finding{
			Kind: NoSpace, Name: "memory request", Object: p.Object, Has: p.Requests.Memory, Needs: needs, Line: line,
			Text: fmt.Sprintf("the RAM disks take %s, and the pod requests %s of memory: it may be put on a node without that room", takes, asked),
			Add: fmt.Sprintf("container %s: resources: {requests: {memory: %s}}, and what the job itself needs", name,
				quantity(p.share(name, needs, p.Requests.Memory, func(c jobspec.Container) int64 { return int64(c.Requests.Memory) }))),
		})
	}
	if each := max(p.Requests.Memory, needs); e.NodeMemory > 0 && each*int64(e.PodsPerNode) > e.NodeMemory {
		takes, has := apart(each*int64(e.PodsPerNode), e.NodeMemory)
		e.find(Finding{
			Kind: NoSpace, Name: "node memory", Object: p.Object, Has: e.NodeMemory, Needs: each * int64(e.PodsPerNode),
			Text: fmt.Sprintf("%d of the pods request %s of a node's memory, and it has %s", e.PodsPerNode, takes, has),
			Add:  "a volume on disk, a window, or fewer pods on a node",
		})
	}
}

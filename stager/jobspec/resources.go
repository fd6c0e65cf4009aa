package jobspec

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
	"github.com/stager-dev/stager/stager/plan"
)

// What stager itself needs. A container without requests and limits gets those of the
// namespace's LimitRange, which were made for something else.
const (
	mebi = plan.Bytes(1 << 20)

	cpuRequest    = 100  // thousandths of a core: it is idle between two files
	cpuLimit      = 4000 // checksums and TLS at 2 GB/s
	memoryRequest = 128 * mebi
	memoryLimit   = 512 * mebi // buffers of every request at once
	workingSet    = 256 * mebi // what a writer needs beside the RAM disk that it fills
	steadyCPU     = 1000       // request and limit in a pod that is Guaranteed
)

// size is what a container asks for and may take; zeros are left out.
type size struct {
	cpu, cpuLimit       int64 // thousandths
	memory, memoryLimit plan.Bytes
	disk                plan.Bytes // requested; never limited, since that would be the pod's limit
}

// installSize is for copying one file.
var installSize = size{10, 1000, 16 * mebi, 128 * mebi, 0}

// installSize is that of the container that copies the binary.
func (p *pod) installSize() size {
	s := installSize
	if p.guaranteed() {
		if cpu := milliOf(p.targets[0].Get("resources", "limits", "cpu")); cpu > 0 {
			s.cpuLimit = min(s.cpuLimit, cpu)
		}
		s.cpu, s.memory = s.cpuLimit, s.memoryLimit
	}
	return s
}

// sizes are those of the containers that are put in.
type sizes struct {
	sidecar, prefetch       size
	sidecarRAM, prefetchRAM plan.Bytes // of the memory limits, for RAM disks
	disk                    plan.Bytes // of the node, in all
}

func (s size) entry() yamledit.Map {
	requests := yamledit.Map{{Key: "cpu", Value: milli(s.cpu)}, {Key: "memory", Value: s.memory.String()}}
	if s.disk > 0 {
		requests = append(requests, yamledit.Entry{Key: "ephemeral-storage", Value: s.disk.String()})
	}
	return yamledit.Map{
		{Key: "requests", Value: requests},
		{Key: "limits", Value: yamledit.Map{{Key: "cpu", Value: milli(s.cpuLimit)}, {Key: "memory", Value: s.memoryLimit.String()}}},
	}
}

func milli(cpu int64) string { return resource.NewMilliQuantity(cpu, resource.DecimalSI).String() }

// measure works out requests and limits, and refuses RAM disks and volumes that the
// pod's own limits would not let live.
func (p *pod) measure() {
	serve := p.req.size.or(size{cpuRequest, cpuLimit, memoryRequest, memoryLimit, 0})
	fetch := serve
	var job plan.Bytes // in RAM that the job's container answers for
	counted := make(map[string]bool)
	for _, m := range p.mounts {
		if counted[m.volume] {
			continue
		}
		counted[m.volume] = true
		switch {
		case m.disk:
			p.sizes.disk += m.bytes
		case !m.memory:
		case p.shape.inside:
			job += m.bytes
		case m.written:
			fetch.memory += m.bytes
			fetch.memoryLimit += m.bytes
			p.sizes.prefetchRAM += m.bytes
			job += m.bytes // its bytes stay in the pod when the writer is gone
		case p.fills(m):
			serve.memory += m.bytes
			serve.memoryLimit += m.bytes
			p.sizes.sidecarRAM += m.bytes
		default:
			job += m.bytes // the job writes its outputs there
		}
	}
	p.jobMemory(job)
	p.jobDisk()
	if p.guaranteed() {
		for _, s := range []*size{&serve, &fetch} {
			s.cpu, s.cpuLimit, s.memory = steadyCPU, steadyCPU, s.memoryLimit
		}
	}
	if p.shape.sidecar {
		serve.disk = p.sizes.disk
	} else {
		fetch.disk = p.sizes.disk
	}
	p.sizes.sidecar, p.sizes.prefetch = serve, p.noBigger(fetch, job)
	p.podLevel()
}

// heapLimit is the soft memory limit of a container of stager's that fills RAM disks: they
// are charged to it, and the runtime does not count them. Without any it takes the
// container's own.
func (p *pod) heapLimit(limit, disks plan.Bytes) []variable {
	if _, set := p.opts.Env[heapVariable]; set || disks == 0 {
		return nil
	}
	soft := (limit - disks) / mebi * 9 / 10
	return []variable{{heapVariable, literalSource(strconv.FormatInt(int64(soft), 10) + "MiB")}}
}

// heapVariable is the Go runtime's soft memory limit.
const heapVariable = "GOMEMLIMIT"

// podLevel raises what a pod asks for and may take as a whole (Kubernetes 1.34): the
// sidecar comes on top of the job there, and what ends before must fit.
func (p *pod) podLevel() {
	var beside, before size
	if p.shape.sidecar {
		beside = p.sizes.sidecar
	}
	switch {
	case p.shape.prefetch:
		before = p.sizes.prefetch
	case p.shape.inside, p.shape.wrap:
		before = p.installSize()
	}
	level := p.spec("resources")
	raise := func(list, what string, to func(has *yamledit.Node) string) {
		if has := level.Get(list, what); !has.IsNull() {
			p.put(at("spec", "resources", list, what), to(has))
		}
	}
	raise("requests", "cpu", func(has *yamledit.Node) string { return milli(max(milliOf(has), before.cpu) + beside.cpu) })
	raise("requests", "memory", func(has *yamledit.Node) string { return (max(bytesOf(has), before.memory) + beside.memory).String() })
	raise("limits", "cpu", func(has *yamledit.Node) string { return milli(max(milliOf(has)+beside.cpuLimit, before.cpuLimit)) })
	raise("limits", "memory", func(has *yamledit.Node) string {
		return max(bytesOf(has)+beside.memoryLimit, before.memoryLimit).String()
	})
}

// fills tells whether the sidecar writes on a volume.
func (p *pod) fills(m mount) bool {
	return slices.ContainsFunc(p.req.plan.Spec.Inputs, func(in plan.Input) bool { return within(static(in.Path), m.path) })
}

// noBigger keeps the init container below the first target, so that the pod as a
// whole asks for no more than it would without.
func (p *pod) noBigger(s size, inRAM plan.Bytes) size {
	limits, requests := p.targets[0].Get("resources", "limits"), p.targets[0].Get("resources", "requests")
	if !p.guaranteed() {
		if cpu := milliOf(orElse(requests.Get("cpu"), limits.Get("cpu"))); cpu > 0 {
			s.cpu = min(s.cpu, cpu)
		}
		if memory := bytesOf(orElse(requests.Get("memory"), limits.Get("memory"))); memory > 0 {
			s.memory = min(s.memory, memory)
		}
	}
	if cpu := milliOf(limits.Get("cpu")); cpu > 0 {
		s.cpuLimit = min(s.cpuLimit, cpu)
		s.cpu = min(s.cpu, s.cpuLimit)
	}
	if memory := bytesOf(limits.Get("memory")); memory > 0 {
		s.memoryLimit = max(min(s.memoryLimit, memory), workingSet+inRAM)
		s.memory = min(s.memory, s.memoryLimit)
	}
	if p.guaranteed() {
		s.cpu, s.memory = s.cpuLimit, s.memoryLimit
	}
	return s
}

func orElse(a, b *yamledit.Node) *yamledit.Node {
	if a != nil {
		return a
	}
	return b
}

// guaranteed tells whether all containers ask for exactly what they may take: one that
// does not would cost the pod its exclusive cores.
func (p *pod) guaranteed() bool {
	all := slices.Concat(p.spec("containers").All(), p.spec("initContainers").All())
	return !slices.ContainsFunc(all, func(c *yamledit.Node) bool {
		for _, name := range []string{"cpu", "memory"} {
			limit, request := c.Get("resources", "limits", name), c.Get("resources", "requests", name)
			if limit.IsNull() || request != nil && quantity(request).Cmp(*quantity(limit)) != 0 {
				return true
			}
		}
		return false
	})
}

// jobMemory makes sure that the target may have a RAM disk beside what it needs.
func (p *pod) jobMemory(disk plan.Bytes) {
	if disk == 0 {
		return
	}
	limits, requests := p.targets[0].Get("resources", "limits"), p.targets[0].Get("resources", "requests")
	limit := bytesOf(limits.Get("memory"))
	if limit == 0 || limit >= disk+workingSet {
		return
	}
	if !p.opts.AdjustMemory {
		or := "or let --adjust-memory add the disk to it"
		if p.opts.Admission {
			or = "or have the cluster's administrator start the webhook with --adjust-memory, which adds the disk to it"
		}
		refuse(limits.Get("memory"), "the RAM disk of %s is charged to container %s, whose memory limit is %s: raise it to %s, make the disk smaller, %s",
			disk, p.names[0], limit, limit+disk, or)
	}
	p.warn("the memory limit of container %s was %s and is now %s: the RAM disk of %s is charged to it", p.names[0], limit, limit+disk, disk)
	in := p.inTarget(0).in("resources")
	p.put(in.in("limits", "memory"), (limit + disk).String())
	if request := bytesOf(requests.Get("memory")); request > 0 {
		p.put(in.in("requests", "memory"), (request + disk).String())
	}
}

// jobDisk makes sure that limits on the disk of the node leave room for the volumes:
// what stands on them counts, and the kubelet evicts.
func (p *pod) jobDisk() {
	var limit plan.Bytes
	var where *yamledit.Node
	for _, c := range p.spec("containers").All() {
		if l := c.Get("resources", "limits", "ephemeral-storage"); !l.IsNull() {
			limit, where = limit+bytesOf(l), l
		}
	}
	if where != nil && p.sizes.disk > limit {
		refuse(where, "the containers may take %s of the node's disk together, and the volumes of the plan are %s, which count: raise the limit by that, or take it out", limit, p.sizes.disk)
	}
}

// quantity is one as Kubernetes reads it.
func quantity(n *yamledit.Node) *resource.Quantity {
	text := n.Text()
	if len(text) > 40 {
		refuse(n, "%q is not a quantity", text[:40]+"…")
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		refuse(n, "%q is not a quantity, such as 100m, 4 or 64Gi", text)
	}
	return &q
}

func bytesOf(n *yamledit.Node) plan.Bytes {
	if n.IsNull() {
		return 0
	}
	return plan.Bytes(quantity(n).Value())
}

func milliOf(n *yamledit.Node) int64 {
	if n.IsNull() {
		return 0
	}
	return quantity(n).MilliValue()
}

// number64 is a whole number that has been checked to be one.
func number64(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

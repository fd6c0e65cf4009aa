package jobspec

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
	"github.com/stager-dev/stager/stager/plan"
)

// Default resources of stager. A container without requests and limits would get those of the
// namespace's LimitRange, which have another purpose.
const (
	mebi = plan.Bytes(1 << 20)

	cpuRequest    = 100  // millicores: stager is idle between two files
	cpuLimit      = 4000 // 4 GB/s, by docs/operations/performance.md
	memoryRequest = 128 * mebi
	memoryLimit   = 512 * mebi // buffers of all concurrent requests
	workingSet    = 256 * mebi // what a writer needs in addition to the RAM disk that it fills
	steadyCPU     = 1000       // request and limit in a Guaranteed pod
)

// size is the requests and limits of a container. Zero fields are left out.
type size struct {
	cpu, cpuLimit       int64 // millicores
	memory, memoryLimit plan.Bytes
	disk                plan.Bytes // request only: a limit would apply to the pod
}

// installSize is the size of the container that copies one file.
var installSize = size{10, 1000, 16 * mebi, 128 * mebi, 0}

// installSize returns the size of the container that installs the binary.
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

// sizes are the sizes of the injected containers.
type sizes struct {
	sidecar, prefetch       size
	sidecarRAM, prefetchRAM plan.Bytes // parts of the memory limits for RAM disks
	disk                    plan.Bytes // total on the node
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

// milli returns a number of millicores as Kubernetes writes it.
func milli(cpu int64) string {
	switch {
	case cpu < 0 || cpu >= 1_000_000:
		return resource.NewMilliQuantity(cpu, resource.DecimalSI).String()
	case cpu%1000 == 0:
		return strconv.FormatInt(cpu/1000, 10)
	}
	return strconv.FormatInt(cpu, 10) + "m"
}

// measure computes requests and limits. It refuses RAM disks and volumes that exceed the pod's own
// limits.
func (p *pod) measure() {
	serve := p.req.size.or(size{cpuRequest, cpuLimit, memoryRequest, memoryLimit, 0})
	fetch := serve
	var job plan.Bytes // RAM charged to the job's container
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
			job += m.bytes // its bytes remain in the pod after the writer has ended
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

// heapLimit sets the soft memory limit of a stager container that fills RAM disks. The container is
// charged for them, but the Go runtime does not count them. Without RAM disks the runtime uses the
// container's own limit.
func (p *pod) heapLimit(limit, disks plan.Bytes) []variable {
	if _, set := p.opts.Env[heapVariable]; set || disks == 0 {
		return nil
	}
	soft := (limit - disks) / mebi * 9 / 10
	return []variable{{heapVariable, literalSource(strconv.FormatInt(int64(soft), 10) + "MiB")}}
}

// heapVariable sets the Go runtime's soft memory limit.
const heapVariable = "GOMEMLIMIT"

// podLevel raises the pod-level requests and limits (Kubernetes 1.34). The sidecar runs in addition
// to the job, and init containers must fit.
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

// fills reports whether the sidecar writes to a volume.
func (p *pod) fills(m mount) bool {
	return slices.ContainsFunc(p.req.plan.Spec.Inputs, func(in plan.Input) bool { return within(static(in.Path), m.path) })
}

// noBigger keeps the init container no larger than the first target, so that it does not raise the
// resources of the pod.
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

// guaranteed reports whether the requests of all containers equal their limits. A single exception
// would cost the pod its exclusive cores.
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

// jobMemory checks that the target's memory limit has room for a RAM disk, or raises the limit.
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

// jobDisk checks that ephemeral storage limits leave room for the volumes. The kubelet counts files
// on volumes and evicts the pod.
func (p *pod) jobDisk() {
	var limit plan.Bytes
	var where *yamledit.Node
	for _, c := range p.spec("containers").All() {
		if l := c.Get("resources", "limits", "ephemeral-storage"); !l.IsNull() {
			limit, where = limit+bytesOf(l), l
		}
	}
	if where != nil && p.sizes.disk > limit {
		refuse(where, "the containers may use %s of the node's disk in total, and the volumes of the plan (%s) count towards it: raise the limit by that amount, or remove it", limit, p.sizes.disk)
	}
}

// quantity parses a quantity as Kubernetes does.
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

// number64 parses an integer that has been validated.
func number64(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

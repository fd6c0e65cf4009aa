package jobspec

import (
	"cmp"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
	"github.com/stager-dev/stager/stager/plan"
)

// imageOf returns the image that an annotation selects, or "" without an annotation.
func imageOf(n *yamledit.Node) string {
	image := n.Text()
	if n != nil && (image == "" || strings.ContainsAny(image, " \t\n")) {
		refuse(n, "%q is not the name of an image; write one such as registry.example.com/stager:0.1.0", image)
	}
	return image
}

// sizeOf returns the resources of stager's containers that the annotations of a pod set.
func sizeOf(notes map[string]*yamledit.Node) (s size) {
	cpu := func(name string) int64 {
		n := notes[name]
		if n != nil && milliOf(n) <= 0 {
			refuse(n, "%s must be above 0 (got %s)", name, n.Text())
		}
		return milliOf(n)
	}
	memory := func(name string, least plan.Bytes) plan.Bytes {
		n := notes[name]
		if n != nil && bytesOf(n) < least {
			refuse(n, "%s must be at least %s (got %s)", name, least, n.Text())
		}
		return bytesOf(n)
	}
	s.cpu, s.cpuLimit = cpu(AnnotationCPU), cpu(AnnotationCPULimit)
	s.memory, s.memoryLimit = memory(AnnotationMemory, 16*mebi), memory(AnnotationMemoryLimit, leastMemory)
	for _, pair := range []struct {
		request, limit string
		above          bool
	}{
		{AnnotationCPU, AnnotationCPULimit, s.cpu > cmp.Or(s.cpuLimit, cpuLimit) || s.cpuLimit > 0 && s.cpuLimit < cmp.Or(s.cpu, cpuRequest)},
		{AnnotationMemory, AnnotationMemoryLimit, s.memory > cmp.Or(s.memoryLimit, memoryLimit) || s.memoryLimit > 0 && s.memoryLimit < cmp.Or(s.memory, memoryRequest)},
	} {
		if pair.above {
			at := notes[pair.request]
			if at == nil {
				at = notes[pair.limit]
			}
			refuse(at, "%s is above %s; write both", pair.request, pair.limit)
		}
	}
	return s
}

// leastMemory is the smallest memory limit with which stager works.
const leastMemory = 128 * mebi

// or returns s, with the fields that are zero taken from usual.
func (s size) or(usual size) size {
	return size{
		cpu: cmp.Or(s.cpu, usual.cpu), cpuLimit: cmp.Or(s.cpuLimit, usual.cpuLimit),
		memory: cmp.Or(s.memory, usual.memory), memoryLimit: cmp.Or(s.memoryLimit, usual.memoryLimit),
		disk: usual.disk,
	}
}

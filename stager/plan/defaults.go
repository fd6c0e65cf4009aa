package plan

import (
	"math"
	"time"
)

// Defaults are set before the file is decoded over them. So a zero that is written in the file
// stays zero.

// defaulter is a part that is an element of a list or behind a pointer. The defaults of other parts
// are set by their parent.
type defaulter interface{ setDefaults() }

func (p *StagePlan) setDefaults() {
	p.Spec.Shard.By = ShardAuto
}

func (v *Volume) setDefaults() {
	v.Medium = "disk"
}

func (in *Input) setDefaults() {
	in.Mode = ModePrefetch
	in.Order = OrderSpec{By: ByName, Epochs: 1}
	in.Unpack = UnpackNone
	in.Verify = "auto"
}

func (s *Source) setDefaults() {
	s.Weight = 1
}

func (w *Window) setDefaults() {
	w.Release = ReleaseLease
	w.Layout = LayoutStage
}

func (out *Output) setDefaults() {
	out.Commit = CommitCheckpoint
	out.When = []string{WhenChange, WhenExit}
	out.QuietPeriod = Duration(10 * time.Second)
	out.Conflict = ConflictFail
	out.Required = true
	out.Deadline = unstated
}

// unstated is the value of a deadline that the file leaves out, until setDeadlines sets it.
const unstated = Duration(-1)

// UsualDeadline is the deadline of an output if it cannot be computed.
const UsualDeadline = 10 * time.Minute

// shortestDeadline is the least computed deadline: requests take time besides their bytes.
const shortestDeadline = time.Minute

// setDeadlines gives each output without a deadline the time that its last upload needs: its whole
// volume at the minimum bandwidth, plus the quiet period. If one of them is unknown, it is
// UsualDeadline.
func (s *Spec) setDeadlines() {
	for i := range s.Outputs {
		out := &s.Outputs[i]
		if out.Deadline != unstated {
			continue
		}
		size, rate := s.sizeOf(out.Volume), out.MinBandwidth
		if limit := s.Limits.Bandwidth; limit > 0 && limit < rate {
			rate = limit
		}
		if size <= 0 || rate <= 0 {
			out.Deadline = Duration(UsualDeadline)
			continue
		}
		seconds := math.Ceil(float64(size) / float64(rate))
		need := time.Duration(min(seconds, 1e9))*time.Second + time.Duration(out.QuietPeriod)
		out.Deadline = Duration(max(shortestDeadline, need))
	}
}

// sizeOf returns the size of a volume of the plan, or 0.
func (s *Spec) sizeOf(volume string) Bytes {
	for _, v := range s.Volumes {
		if v.Name == volume {
			return v.Size
		}
	}
	return 0
}

func (h *Hold) setDefaults() { *h = DefaultHold }

// boundPrefetches limits prefetches to the size of their volume, so that a larger source is refused
// before it is fetched: Kubernetes evicts a pod that exceeds a volume's limit.
func (s *Spec) boundPrefetches() {
	for i := range s.Inputs {
		in := &s.Inputs[i]
		for _, v := range s.Volumes {
			if v.Name == in.Volume && in.Mode == ModePrefetch && in.MaxBytes == 0 {
				in.MaxBytes = v.Size
			}
		}
	}
}
